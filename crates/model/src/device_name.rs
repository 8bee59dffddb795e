//! Names of devices: `APPLICATION/DEVICE`.

use std::sync::Arc;

use crate::{Limits, Refusal, TopicName};

/// Whether a text can name an application, or a device in it.
pub fn is_device_name(text: &str) -> bool {
    const LEN_MAX: usize = 64;
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-:".contains(&byte);
    (1..=LEN_MAX).contains(&text.len()) && text.bytes().all(is_plain)
}

/// The name of a device in its application.
///
/// # Errors
/// One of them is no name.
pub fn device_name(application: &str, device: &str) -> Result<Arc<str>, Refusal> {
    for (what, text) in [("application", application), ("device", device)] {
        if !is_device_name(text) {
            let why =
                format!("`{text}` is not the name of a {what}; use 1 to 64 of A-Z a-z 0-9 . _ - :");
            return Err(Refusal::bad_request(why));
        }
    }
    Ok(format!("{application}/{device}").into())
}

/// A name as a command gives it: `APPLICATION/DEVICE`.
///
/// # Errors
/// It is no such name.
pub fn parse_device_name(device: &str) -> Result<Arc<str>, Refusal> {
    let why =
        || Refusal::bad_request(format!("`{device}` is not a device; give APPLICATION/DEVICE"));
    let (application, device) = device.split_once('/').ok_or_else(why)?;
    device_name(application, device)
}

/// The topic of a device that a command names.
///
/// # Errors
/// The text is not the name of a device.
pub fn topic_of_device(device: &str) -> Result<TopicName, Refusal> {
    parse_device_name(device).map(|name| device_topic(&name, ""))
}

/// A topic about a device: `end` is empty, or such as `/presence`. The name was checked.
pub fn device_topic(name: &str, end: &str) -> TopicName {
    let limits = Limits { topic_bytes_max: usize::MAX, ..Limits::default() };
    TopicName::parse(&format!("devices/{name}{end}"), &limits).expect("names of devices are levels")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Code;

    #[test]
    fn a_device_is_named_by_its_application_and_itself() {
        let topic = topic_of_device("a/d.1:x_y-z").map(|topic| topic.to_string());
        assert_eq!(topic.as_deref(), Ok("devices/a/d.1:x_y-z"));
        for wrong in
            ["", "a", "a/", "/d", "a/b/c", "a/é", "a/b c", &format!("a/{}", "x".repeat(65))]
        {
            let refusal = topic_of_device(wrong).expect_err(wrong);
            assert_eq!(refusal.code, Code::BadRequest, "{wrong}");
        }
    }
}
