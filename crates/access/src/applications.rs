//! Applications and their keys: who may attach devices, and who may ask them.

use std::fmt;
use std::time::Duration;

use model::{Code, HashMap, Refusal, split_authorization};
use sha2::{Digest, Sha256};

use crate::once::{GOOD_SECONDS, UsedOnce, is_fresh};
use crate::proof::{Secret, is_proof};

/// An application whose devices attach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApplicationConfig {
    /// Its name.
    pub id: String,
    /// Its keys: several, so that one can be replaced while others are in use.
    pub keys: Vec<KeyConfig>,
    /// Whether each device's coming and going is told in a topic of its own.
    pub presence: bool,
}

/// A key of an application.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyConfig {
    /// Its public name.
    pub id: String,
    /// The secret.
    pub key: String,
    /// What it may be used for.
    pub roles: Vec<Role>,
}

impl fmt::Debug for KeyConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyConfig").field("id", &self.id).field("roles", &self.roles).finish()
    }
}

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
pub struct ApplicationIndex(pub u16);

/// What a key is wanted for.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Whose it is to be.
    pub application: &'a str,
    /// Which of its roles.
    pub role: Role,
    /// What a proof is to be about.
    pub about: &'a str,
}

/// What proofs are checked by.
#[derive(Clone, Copy, Debug)]
pub struct Proofs<'a> {
    /// What our challenges are made with.
    pub secret: &'a Secret,
    /// How long the process runs.
    pub now: Duration,
    /// What was used before.
    pub used: &'a UsedOnce,
}

/// The applications of a configuration.
#[derive(Debug, Default)]
pub struct Applications {
    all: Vec<ApplicationConfig>,
    by_id: HashMap<String, ApplicationIndex>,
    /// By the hash of the key: finding one takes the same time whatever was guessed.
    by_key: HashMap<[u8; 32], (ApplicationIndex, usize)>,
}

fn hash(text: &str) -> [u8; 32] {
    Sha256::digest(text.as_bytes()).into()
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
    pub fn renewed(&self, configs: &[ApplicationConfig]) -> Self {
        let of = |id: &str| configs.iter().find(|config| config.id == id).cloned();
        let known = self.all.iter().map(|old| {
            of(&old.id).unwrap_or_else(|| ApplicationConfig { keys: Vec::new(), ..old.clone() })
        });
        let is_new = |config: &&ApplicationConfig| !self.by_id.contains_key(&config.id);
        let all: Vec<_> = known.chain(configs.iter().filter(is_new).cloned()).collect();
        Self::new(&all)
    }

    /// The application's configuration.
    pub fn at(&self, index: ApplicationIndex) -> &ApplicationConfig {
        &self.all[usize::from(index.0)]
    }

    /// The number of an application.
    pub fn index_of(&self, id: &str) -> Option<ApplicationIndex> {
        self.by_id.get(id).copied()
    }

    /// Whether the coming and going of an application's devices is told.
    pub fn has_presence(&self, application: &str) -> bool {
        self.by_id.get(application).is_some_and(|index| self.at(*index).presence)
    }

    /// Checks who asks: `Bearer KEY`, or the proof that one has it: `Tidegate-HMAC key="ID", challenge="…", mac="…"`.
    ///
    /// # Errors
    /// No key, an unknown one, one of another application, or without the role.
    pub fn check(
        &self,
        authorization: &str,
        Wanted { application, role, about }: Wanted<'_>,
        proofs: Proofs<'_>,
    ) -> Result<ApplicationIndex, Refusal> {
        let (scheme, given) = split_authorization(authorization);
        let found = match scheme.to_ascii_lowercase().as_str() {
            "bearer" => self.by_key.get(&hash(given)).copied(),
            "tidegate-hmac" => self.prove(application, given, about, proofs)?,
            _ => {
                let text = "cannot serve without a key of the application: present one as `Authorization: \
                            Bearer KEY`, or its proof as `Tidegate-HMAC`; see docs/devices.md";
                return Err(Refusal::new(Code::BadToken, text));
            }
        };
        let unknown = || {
            let text = format!(
                "cannot accept the key: it is none of `{application}`, or its proof is wrong or older than \
                 {GOOD_SECONDS} s; check the key and the application"
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

    /// The key that a proof is made with, if it is right. It is used up by that.
    fn prove(
        &self,
        application: &str,
        proof: &str,
        about: &str,
        Proofs { secret, now, used }: Proofs<'_>,
    ) -> Result<Option<(ApplicationIndex, usize)>, Refusal> {
        let part = |name: &str| {
            let mut parts = proof.split(',').filter_map(|part| part.trim().split_once('='));
            parts.find(|(known, _)| *known == name).map(|(_, value)| value.trim_matches('"'))
        };
        let proven = || {
            let (id, given, mac) = (part("key")?, part("challenge")?, part("mac")?);
            let index = *self.by_id.get(application)?;
            let keys = &self.at(index).keys;
            let at = keys.iter().position(|key| key.id == id)?;
            let is_right = is_proof(keys[at].key.as_bytes(), &format!("{given}\n{about}"), mac);
            let number = u64::from_str_radix(mac.get(..16)?, 16).ok()?;
            (is_right && is_fresh(given, secret, now)).then_some((number, (index, at)))
        };
        let Some((number, found)) = proven() else { return Ok(None) };
        used.take(number, now).map(|()| Some(found))
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
    use crate::once::challenge;
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
        check_again(authorization, application, role, &UsedOnce::new(10))
    }

    fn check_again(
        authorization: &str,
        application: &str,
        role: Role,
        used: &UsedOnce,
    ) -> Result<u16, Code> {
        let wanted = Wanted { application, role, about: "d1" };
        let proofs = Proofs { secret: &[7; 32], now: Duration::from_secs(1_000), used };
        let found = applications().check(authorization, wanted, proofs);
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
    fn a_proof_is_of_one_key_one_device_one_minute_and_one_use() {
        let proof = |key: &str, about: &str, seconds: u64| {
            let challenge = challenge(&[7; 32], Duration::from_secs(seconds), 9);
            let text = format!("{challenge}\n{about}");
            let mac = proof(format!("secret-{key}").as_bytes(), &text);
            format!("Tidegate-HMAC key=\"k1\", challenge=\"{challenge}\", mac=\"{mac}\"")
        };
        assert_eq!(check(&proof("k1", "d1", 990), "a", Role::Device), Ok(0));
        assert_eq!(check(&proof("k1", "d2", 990), "a", Role::Device), Err(Code::BadToken));
        assert_eq!(check(&proof("k2", "d1", 990), "a", Role::Device), Err(Code::BadToken));
        assert_eq!(check(&proof("k1", "d1", 900), "a", Role::Device), Err(Code::BadToken));
        assert_eq!(check("Tidegate-HMAC key=k1", "a", Role::Device), Err(Code::BadToken));
        let (used, right) = (UsedOnce::new(10), proof("k1", "d1", 990));
        assert_eq!(check_again(&right, "a", Role::Device, &used), Ok(0));
        assert_eq!(check_again(&right, "a", Role::Device, &used), Err(Code::BadToken), "used");
    }
}
