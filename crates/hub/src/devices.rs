//! Which devices are attached, and where: the part of a shard that is home to their names.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use model::planted::{Fault, is_planted};

use crate::tables::connections::ShardConnection;

/// Where a device is attached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DevicePlace {
    /// Its connection.
    pub connection: ShardConnection,
    /// Which attachment of the name there: a session may attach, detach and attach again while others take the name
    /// from it, and what is said of one attachment says nothing of the next.
    pub attachment: u64,
}

/// What is known of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// Where it is, if it is attached.
    pub place: Option<DevicePlace>,
    /// When it came, or went: seconds since 1970.
    pub since: u32,
}

/// The devices whose names are at home on a shard: `APPLICATION/DEVICE`, by name.
#[derive(Debug, Default)]
pub struct Devices {
    known: BTreeMap<Arc<str>, Device>,
    /// Those that went, the first first; some came back since.
    gone: VecDeque<(Arc<str>, u32)>,
    gone_max: usize,
}

impl Devices {
    /// None; of those that go, the last `gone_max` are remembered.
    pub fn new(gone_max: usize) -> Self {
        Self { gone_max, ..Self::default() }
    }

    /// Notes that a device is attached; answers where it was until now.
    pub fn attach(&mut self, name: Arc<str>, place: DevicePlace, now: u32) -> Option<DevicePlace> {
        let device = Device { place: Some(place), since: now };
        self.known.insert(name, device).and_then(|before| before.place)
    }

    /// Notes that a device went from `place`; answers whether it was there still.
    pub fn detach(&mut self, name: &Arc<str>, place: DevicePlace, now: u32) -> bool {
        let is_there = |it: &&mut Device| {
            it.place == Some(place) || (it.place.is_some() && is_planted(Fault::TakenOverAndGone))
        };
        let Some(device) = self.known.get_mut(name).filter(is_there) else {
            return false;
        };
        *device = Device { place: None, since: now };
        self.gone.push_back((Arc::clone(name), now));
        while self.gone.len() > self.gone_max
            && let Some((oldest, since)) = self.gone.pop_front()
        {
            if self.known.get(&oldest) == Some(&Device { place: None, since }) {
                self.known.remove(&oldest);
            }
        }
        true
    }

    /// What is known of a device.
    pub fn get(&self, name: &str) -> Option<Device> {
        self.known.get(name).copied()
    }

    /// The attached devices of an application after a name, at most so many.
    pub fn list(&self, application: &str, after: &str, count: usize) -> Vec<(Arc<str>, Device)> {
        let prefix = format!("{application}/");
        let start = format!("{prefix}{after}");
        let is_its = |name: &Arc<str>| name.starts_with(&prefix);
        let range = self.known.range::<str, _>((Bound::Excluded(start.as_str()), Bound::Unbounded));
        range
            .take_while(|(name, _)| is_its(name))
            .filter(|(_, device)| device.place.is_some())
            .take(count)
            .map(|(name, device)| (Arc::clone(name), *device))
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::connections::ConnectionId;
    use crate::tables::index::ShardIndex;

    fn place(link: u32) -> DevicePlace {
        let id = ConnectionId::for_test(link);
        DevicePlace { connection: ShardConnection { shard: ShardIndex(0), id }, attachment: 0 }
    }

    #[test]
    fn a_device_is_in_one_place() {
        let mut devices = Devices::new(2);
        let name: Arc<str> = "a/1".into();
        assert_eq!(devices.attach(Arc::clone(&name), place(1), 10), None);
        assert_eq!(devices.attach(Arc::clone(&name), place(2), 11), Some(place(1)));
        assert!(!devices.detach(&name, place(1), 12), "it was taken over");
        assert!(devices.detach(&name, place(2), 13));
        assert_eq!(devices.get("a/1"), Some(Device { place: None, since: 13 }));
    }

    #[test]
    fn an_older_attachment_of_the_same_session_does_not_end_the_next() {
        let mut devices = Devices::new(2);
        let name: Arc<str> = "a/1".into();
        let again = DevicePlace { attachment: 1, ..place(1) };
        devices.attach(Arc::clone(&name), place(1), 10);
        assert_eq!(devices.attach(Arc::clone(&name), again, 11), Some(place(1)));
        assert!(!devices.detach(&name, place(1), 12));
        assert_eq!(devices.get("a/1"), Some(Device { place: Some(again), since: 11 }));
    }

    #[test]
    fn lists_are_of_one_application_and_the_gone_are_forgotten() {
        let mut devices = Devices::new(1);
        for (link, name) in ["a/1", "a/2", "a/3", "ab/1", "b/1"].into_iter().enumerate() {
            devices.attach(name.into(), place(link as u32), 1);
        }
        let names = |devices: &Devices, after: &str| -> Vec<String> {
            devices.list("a", after, 2).iter().map(|(name, _)| name.to_string()).collect()
        };
        assert_eq!(names(&devices, ""), ["a/1", "a/2"]);
        assert_eq!(names(&devices, "2"), ["a/3"]);
        devices.detach(&"a/1".into(), place(0), 2);
        devices.detach(&"a/2".into(), place(1), 3);
        assert_eq!((devices.get("a/1"), names(&devices, "")), (None, vec!["a/3".to_owned()]));
    }
}
