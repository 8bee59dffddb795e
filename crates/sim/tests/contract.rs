//! The durable backbone keeps the contract on a disk that fails and loses what it had not told; and the contract finds every fault
//! that such a disk can be given.

use std::time::Duration;

use backbone::{Backbone, DiskBackbone, contract};
use model::{Limits, Moment};
use tidegate_sim::{Lie, Random, SharedDisk, SimDisk, SimStore};

/// A process on a simulated disk.
struct Killed {
    disk: SharedDisk,
    backbone: DiskBackbone<SimStore>,
    random: Random,
}

impl Killed {
    fn new(lie: Lie, seed: u64) -> Self {
        let disk = SimDisk::with(lie);
        let backbone = start(&disk);
        Self { disk, backbone, random: Random::new(seed) }
    }
}

fn start(disk: &SharedDisk) -> DiskBackbone<SimStore> {
    let store = SimStore::new(disk, 0);
    let (found, epoch) = {
        let disk = disk.lock().expect("one thread");
        (disk.found(100), disk.epoch())
    };
    let now = Moment { elapsed: Duration::from_secs(1), unix_ms: 1_000 };
    DiskBackbone::new(store, epoch, &found, &Limits::default(), now)
}

impl contract::Subject for Killed {
    fn backbone(&mut self) -> &mut dyn Backbone {
        &mut self.backbone
    }

    fn drive(&mut self) -> bool {
        let mail = self.disk.lock().expect("one thread").work(1);
        let is_told = !mail.is_empty();
        mail.into_iter().for_each(|(_, mail)| self.backbone.handle_store(mail));
        is_told || self.backbone.is_waiting()
    }

    fn restart(&mut self) {
        self.disk.lock().expect("one thread").crash(&mut self.random);
        self.backbone = start(&self.disk);
    }

    fn fail(&mut self) -> bool {
        self.disk.lock().expect("one thread").fail();
        true
    }
}

/// What is broken on disks with this fault: of many, for what a crash loses is chance.
fn broken(lie: Lie) -> Vec<contract::Broken> {
    const SEEDS: u64 = 20;
    (0..SEEDS)
        .flat_map(|seed| contract::find_broken(&mut || Box::new(Killed::new(lie, seed))))
        .collect()
}

#[test]
fn it_keeps_the_contract() {
    assert_eq!(broken(Lie::None), []);
}

#[test]
fn it_finds_every_fault_of_a_disk() {
    let lies = [
        (Lie::AnswersEarly, "safety"),
        (Lie::LosesFromTheMiddle, "safety"),
        (Lie::ForgetsTheNewest, "safety"),
        (Lie::ForgetsKeys, "identity"),
    ];
    for (lie, promise) in lies {
        let broken = broken(lie);
        let is_found = broken.iter().any(|broken| broken.promise == promise);
        assert!(is_found, "{lie:?} breaks the promise of {promise:?}; found were {broken:?}");
    }
}
