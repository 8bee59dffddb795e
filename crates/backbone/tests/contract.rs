//! The contract finds every lie: backbones that are wrong in one way each.

mod lies;

use lies::{Lie, Lying};
use tidegate_backbone::contract;
use tidegate_backbone::contract::stream::StreamSubject;

#[test]
fn a_stream_whose_sequences_have_holes_keeps_it() {
    contract::check(&mut || Box::new(StreamSubject::new()));
}

#[test]
fn an_honest_backbone_keeps_it_through_the_liar() {
    contract::check(&mut || Box::new(Lying::new(Lie::None)));
}

#[test]
fn the_suite_finds_every_lie() {
    for (lie, promise) in lies::ALL {
        let broken = contract::find_broken(&mut || Box::new(Lying::new(lie)));
        let found = broken.iter().any(|broken| broken.promise == promise);
        assert!(found, "{lie:?} breaks the promise of {promise:?}; found were {broken:?}");
    }
}
