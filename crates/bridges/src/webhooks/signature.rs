//! The signature that proves to an endpoint that a request is ours. Standard Webhooks, "Signature scheme".

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, Mac};
use server::config::WebhookSecret;
use sha2::Sha256;

/// The value of `webhook-signature`: one signature for each secret, so that a secret can be replaced while
/// requests are under way.
pub(crate) fn signatures(
    secrets: &[WebhookSecret],
    id: &str,
    unix_seconds: u64,
    body: &[u8],
) -> String {
    let sign = |secret: &WebhookSecret| {
        let mac = Hmac::<Sha256>::new_from_slice(secret.bytes());
        let mut mac = mac.expect("HMAC takes keys of any length");
        mac.update(format!("{id}.{unix_seconds}.").as_bytes());
        mac.update(body);
        format!("v1,{}", BASE64_STANDARD.encode(mac.finalize().into_bytes()))
    };
    secrets.iter().map(sign).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Made with the official library for Python, 1.1.0.
    #[test]
    fn signatures_are_those_of_the_official_library() {
        let secret = |text| WebhookSecret::parse(text).expect("valid");
        let first = secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw");
        let second = secret("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD");
        let signed = signatures(
            &[first, second],
            "msg_p5jXN8AQM9LWM0D4loKWxJek",
            1_614_265_330,
            b"{\"test\": 2432232314}",
        );
        let expected = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE= \
                        v1,78nXHjpFP0tVJQW5D0SBwmVyyW87BV/rL6MgfM/Bw44=";
        assert_eq!(signed, expected);
    }
}
