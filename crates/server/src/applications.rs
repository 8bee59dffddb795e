//! Applications and their keys: who may attach devices, and who may ask them.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use model::{Code, Refusal};
use protocol::http::RequestHead;
use sha2::{Digest, Sha256};

use crate::config::ApplicationConfig;
use crate::proof::{Secret, is_proof, is_short_proof, short_proof};

/// What a key may be used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Attaching devices.
    Device,
    /// Asking them, and hearing of them.
    Application,
    /// Seeing the application's statistics.
    Admin,
}

/// An application, by its number among those of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct ApplicationIndex(pub u16);

/// The applications of a configuration.
#[derive(Debug, Default)]
pub struct Applications {
    all: Vec<ApplicationConfig>,
    by_id: HashMap<String, ApplicationIndex>,
    /// By the hash of the key: finding one takes the same time whatever was guessed.
    by_key: HashMap<[u8; 32], (ApplicationIndex, usize)>,
}

/// How long a challenge is good for.
const CHALLENGE_SECONDS: u64 = 60;

fn hash(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
}

/// A challenge that only we can have made, and only lately.
pub(crate) fn challenge(secret: &Secret, unix_ms: u64) -> String {
    let text = format!("{:x}", unix_ms / 1_000);
    let proof = short_proof(secret, &text);
    format!("{text}.{proof}")
}

/// How long a key for one WebSocket is good for.
pub(crate) const ONE_TIME_SECONDS: u64 = 60;

/// Keys for one WebSocket that were used, and until when they would be good (seconds since 1970).
pub(crate) type UsedKeys = Mutex<HashMap<u64, u64>>;

/// A key that opens one WebSocket for one device, for those who cannot set header fields.
pub(crate) fn one_time_key(name: &str, secret: &Secret, unix_ms: u64, nonce: u64) -> String {
    let until = unix_ms / 1_000 + ONE_TIME_SECONDS;
    let text = format!("{until:x}.{nonce:x}");
    let proof = short_proof(secret, &format!("one-time {text} {name}"));
    format!("{text}.{proof}")
}

/// Whether a key opens a WebSocket for this device, now and for the first time.
pub(crate) fn is_one_time_key(
    key: &str,
    name: &str,
    secret: &Secret,
    unix_ms: u64,
    used: &UsedKeys,
) -> bool {
    let number = |text: &str| u64::from_str_radix(text, 16).ok();
    let Some((text, proof)) = key.rsplit_once('.') else { return false };
    let Some((until, nonce)) = text.split_once('.') else { return false };
    if !is_short_proof(secret, &format!("one-time {text} {name}"), proof) {
        return false;
    }
    let (Some(until), Some(nonce)) = (number(until), number(nonce)) else { return false };
    let now = unix_ms / 1_000;
    // A panic elsewhere with the lock held leaves the map whole.
    let mut used = used.lock().unwrap_or_else(PoisonError::into_inner);
    used.retain(|_, until| *until >= now);
    until >= now && used.insert(nonce, until).is_none()
}

fn is_fresh(challenge: &str, secret: &Secret, unix_ms: u64) -> bool {
    let Some((text, proof)) = challenge.split_once('.') else { return false };
    let seconds = u64::from_str_radix(text, 16).unwrap_or(0);
    is_short_proof(secret, text, proof)
        && (unix_ms / 1_000).saturating_sub(seconds) <= CHALLENGE_SECONDS
}

impl Applications {
    /// The applications that a configuration spells out.
    pub fn new(all: &[ApplicationConfig]) -> Self {
        let mut it = Self { all: all.to_vec(), ..Self::default() };
        for (at, application) in all.iter().enumerate() {
            let index = ApplicationIndex(at as u16);
            it.by_id.insert(application.id.clone(), index);
            for (key_at, key) in application.keys.iter().enumerate() {
                it.by_key.insert(hash(&key.key), (index, key_at));
            }
        }
        it
    }

    /// The same with what another configuration says of applications. One that it does not have any more keeps its
    /// number, and has no key.
    pub(crate) fn renewed(&self, configs: &[ApplicationConfig]) -> Self {
        let of = |id: &str| configs.iter().find(|config| config.id == id).cloned();
        let known = self.all.iter().map(|old| {
            of(&old.id).unwrap_or_else(|| ApplicationConfig { keys: Vec::new(), ..old.clone() })
        });
        let is_new = |config: &&ApplicationConfig| !self.by_id.contains_key(&config.id);
        let all: Vec<_> = known.chain(configs.iter().filter(is_new).cloned()).collect();
        Self::new(&all)
    }

    /// The application's configuration.
    pub(crate) fn at(&self, index: ApplicationIndex) -> &ApplicationConfig {
        &self.all[usize::from(index.0)]
    }

    /// Whether the coming and going of an application's devices is told.
    pub(crate) fn has_presence(&self, application: &str) -> bool {
        self.by_id.get(application).is_some_and(|index| self.at(*index).presence)
    }

    /// Checks who asks: a key as `Authorization: Bearer`, or, for a device, the proof that it has one:
    /// `Tidegate-HMAC key="ID", challenge="…", mac="…"`. `about` is what the proof is about.
    ///
    /// # Errors
    /// No key, an unknown one, one of another application, or without the role.
    pub(crate) fn check(
        &self,
        head: &RequestHead,
        (application, role, about): (&str, Role, &str),
        secret: &Secret,
        unix_ms: u64,
    ) -> Result<ApplicationIndex, Refusal> {
        let authorization = head.field("authorization").unwrap_or("");
        let found = match authorization.split_once(' ') {
            Some(("Bearer", key)) => self.by_key.get(&hash(key.trim())).copied(),
            Some(("Tidegate-HMAC", proof)) => {
                self.prove(application, proof, about, secret, unix_ms)
            }
            _ => {
                let text = "cannot serve without a key of the application: present one as `Authorization: \
                            Bearer KEY`, or its proof as `Tidegate-HMAC`; see docs/devices.md";
                return Err(Refusal::new(Code::BadToken, text));
            }
        };
        let unknown = || {
            let text = format!(
                "cannot accept the key: it is none of `{application}`, or its proof is wrong or older than \
                 {CHALLENGE_SECONDS} s; check the key and the application"
            );
            Refusal::new(Code::BadToken, text)
        };
        let (index, key) = found.ok_or_else(unknown)?;
        let known = self.at(index);
        if known.id != application {
            return Err(unknown());
        }
        let roles = &known.keys[key].roles;
        if roles.contains(&role) || roles.contains(&Role::Admin) {
            return Ok(index);
        }
        let text = format!(
            "cannot allow that: the key has not the role \"{}\"; use another key, or give it the role in the \
             configuration",
            role.name()
        );
        Err(Refusal::new(Code::NotAllowed, text))
    }

    fn prove(
        &self,
        application: &str,
        proof: &str,
        about: &str,
        secret: &Secret,
        unix_ms: u64,
    ) -> Option<(ApplicationIndex, usize)> {
        let part = |name: &str| {
            let mut parts = proof.split(',').filter_map(|part| part.trim().split_once('='));
            parts.find(|(known, _)| *known == name).map(|(_, value)| value.trim_matches('"'))
        };
        let (id, given, proof) = (part("key")?, part("challenge")?, part("mac")?);
        let index = *self.by_id.get(application)?;
        let keys = &self.at(index).keys;
        let at = keys.iter().position(|key| key.id == id)?;
        let is_right = is_proof(keys[at].key.as_bytes(), &format!("{given}\n{about}"), proof);
        (is_right && is_fresh(given, secret, unix_ms)).then_some((index, at))
    }
}

impl Role {
    /// Its name in the configuration.
    pub fn name(self) -> &'static str {
        match self {
            Self::Device => "device",
            Self::Application => "application",
            Self::Admin => "admin",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::KeyConfig;
    use crate::proof::proof;

    fn applications() -> Applications {
        let key = |id: &str, roles: &[Role]| KeyConfig {
            id: id.into(),
            key: format!("secret-{id}"),
            roles: roles.to_vec(),
        };
        let keys = vec![key("k1", &[Role::Device]), key("k2", &[Role::Application])];
        let other = vec![key("k3", &[Role::Admin])];
        let application =
            |id: &str, keys| ApplicationConfig { id: id.into(), keys, presence: true };
        Applications::new(&[application("a", keys), application("b", other)])
    }

    fn check(authorization: &str, application: &str, role: Role) -> Result<u16, Code> {
        let field = ("authorization".to_owned(), authorization.to_owned());
        let head = RequestHead {
            method: "POST".into(),
            target: "/".into(),
            version_minor: 1,
            fields: vec![field],
        };
        let asked = (application, role, "d1");
        let found = applications().check(&head, asked, &[7; 32], 1_000_000);
        found.map(|index| index.0).map_err(|refusal| refusal.code)
    }

    #[test]
    fn keys_open_what_their_roles_say_in_their_application() {
        assert_eq!(check("Bearer secret-k1", "a", Role::Device), Ok(0));
        assert_eq!(check("Bearer secret-k1", "a", Role::Application), Err(Code::NotAllowed));
        assert_eq!(check("Bearer secret-k1", "b", Role::Device), Err(Code::BadToken));
        assert_eq!(check("Bearer secret-k3", "b", Role::Device), Ok(1), "an admin may all");
        assert_eq!(check("Bearer guess", "a", Role::Device), Err(Code::BadToken));
        assert_eq!(check("", "a", Role::Device), Err(Code::BadToken));
    }

    #[test]
    fn renewed_keys_go_and_come_and_applications_keep_their_numbers() {
        let mut configs = applications().all;
        configs.remove(0);
        configs[0].keys[0].key = "another-k3".into();
        configs.insert(0, ApplicationConfig { id: "c".into(), keys: Vec::new(), presence: true });
        let renewed = applications().renewed(&configs);
        let number = |id: &str| renewed.by_id.get(id).map(|index| index.0);
        assert_eq!((number("a"), number("b"), number("c")), (Some(0), Some(1), Some(2)));
        assert!(renewed.at(ApplicationIndex(0)).keys.is_empty());
        assert!(renewed.by_key.contains_key(&hash("another-k3")));
        assert!(!renewed.by_key.contains_key(&hash("secret-k3")));
    }

    #[test]
    fn a_one_time_key_opens_once_for_a_minute() {
        let (secret, used) = ([7; 32], UsedKeys::default());
        let key = one_time_key("a/d1", &secret, 1_000_000, 99);
        let opens =
            |key: &str, name: &str, unix_ms| is_one_time_key(key, name, &secret, unix_ms, &used);
        assert!(!opens(&key, "a/d2", 1_000_000) && !opens("1.2.3", "a/d1", 1_000_000));
        assert!(opens(&key, "a/d1", 1_050_000));
        assert!(!opens(&key, "a/d1", 1_050_000), "it was used");
        let late = one_time_key("a/d1", &secret, 1_000_000, 100);
        assert!(!opens(&late, "a/d1", 1_061_000));
    }

    #[test]
    fn a_proof_is_of_one_key_one_device_and_one_minute() {
        let proof = |key: &str, about: &str, unix_ms: u64| {
            let challenge = challenge(&[7; 32], unix_ms);
            let text = format!("{challenge}\n{about}");
            let mac = proof(format!("secret-{key}").as_bytes(), &text);
            format!("Tidegate-HMAC key=\"k1\", challenge=\"{challenge}\", mac=\"{mac}\"")
        };
        assert_eq!(check(&proof("k1", "d1", 990_000), "a", Role::Device), Ok(0));
        assert_eq!(check(&proof("k1", "d2", 990_000), "a", Role::Device), Err(Code::BadToken));
        assert_eq!(check(&proof("k2", "d1", 990_000), "a", Role::Device), Err(Code::BadToken));
        assert_eq!(check(&proof("k1", "d1", 900_000), "a", Role::Device), Err(Code::BadToken));
        assert_eq!(check("Tidegate-HMAC key=k1", "a", Role::Device), Err(Code::BadToken));
    }
}
