//! Fuzz targets of datagrams between nodes.

use std::time::{Duration, Instant};

use spillway_codec::fuzz::check_message;
use spillway_codec::{decode, encode};
use spillway_types::{ModelName, NodeName, RegionName};

use crate::datagram::Datagram;
use crate::revocations::RevocationWord;
use crate::sharing::Frame;
use crate::speeds::SpeedsTelling;
use crate::steering::SteeringWord;
use crate::{
    GossipConfig, GossipMachine, GossipMember, NameId, Sharing, SharingConfig, SiblingNews, Speeds,
    SteeringGossip,
};

/// A target: the name of the folder of its inputs, and what runs one of them.
pub type Target = (&'static str, fn(&[u8]));

/// The targets of this crate.
pub const TARGETS: &[Target] = &[
    ("load_datagram", load_datagram),
    ("speed_datagram", speed_datagram),
    ("prompt_datagram", prompt_datagram),
    ("steering_datagram", steering_datagram),
    ("revocation_datagram", revocation_datagram),
];

/// The nodes that a datagram may come from: a sibling, and a node elsewhere.
const SENDERS: [(&str, &str); 2] = [("b", "eu"), ("c", "us")];

/// Returns the moment that all times count from.
#[expect(clippy::disallowed_methods, reason = "there is no other way to have an instant")]
pub(crate) fn some_moment() -> Instant {
    Instant::now()
}

/// Checks that a list is read as it was written, for any writer.
fn revocation_datagram(input: &[u8]) {
    let Some(word) = check_message::<RevocationWord>(input) else { return };
    let Ok(datagram) = encode(&word) else { return };
    assert_eq!(crate::RevocationGossip::read(&datagram).ok(), Some(word.list));
}

/// Checks that any datagram leaves views with numbers that make sense, and the gossip running.
fn load_datagram(input: &[u8]) {
    let Some(datagram) = check_message::<Datagram>(input) else { return };
    let mut now = some_moment();
    let me = GossipMember::new("a", "eu");
    let mut gossip =
        GossipMachine::new(me, 5, GossipConfig::default(), fastrand::Rng::with_seed(1), now);
    let members = [("a", "eu"), SENDERS[0], SENDERS[1]];
    gossip.set_members(&members.map(|(node, region)| GossipMember::new(node, region)), now);
    for (node, region) in SENDERS {
        let (node, region) = (NodeName::from(node), RegionName::from(region));
        let own = Datagram { origin: NameId::of_node(&region, &node), ..datagram.clone() };
        let Ok(bytes) = encode(&own) else { return };
        drop(gossip.handle_datagram(now, &node, &region, &bytes));
        now += Duration::from_millis(50);
        gossip.handle_timeout(now);
        while let Some((_, sent)) = gossip.poll_transmit() {
            assert!(decode::<Datagram>(&sent).is_ok(), "an answer that nobody can read");
        }
        while gossip.poll_event().is_some() {}
    }
    for view in gossip.regions(now) {
        for report in view.models.values() {
            let load = report.load;
            assert!(load.queued >= 0.0 && load.running >= 0.0, "{load:?}");
            assert!(load.kv_use.is_none_or(|share| (0.0..=1.0).contains(&share)), "{load:?}");
        }
    }
    drop(gossip.peers(now));
}

/// Checks that the speeds that a region reports are finite and not negative.
fn speed_datagram(input: &[u8]) {
    let Some(telling) = check_message::<SpeedsTelling>(input) else { return };
    let Ok(bytes) = encode(&telling) else { return };
    let mut speeds = Speeds::new(1);
    let (node, region) = (NodeName::from("c"), RegionName::from("us"));
    let now = some_moment();
    drop(speeds.handle_datagram(now, &node, &region, &bytes));
    let model = NameId::of_model(&ModelName::from("tiny"));
    if let Some(speed) = speeds.speed(&region, model, now) {
        for number in [speed.floor_ms, speed.prefill_ms, speed.decode_ms, speed.ends_per_s] {
            assert!(number.is_finite() && number >= 0.0, "{speed:?}");
        }
    }
}

/// Checks that any number in a report means that the region takes clients or that it does not, and
/// that only its own report counts.
fn steering_datagram(input: &[u8]) {
    let Some(word) = check_message::<SteeringWord>(input) else { return };
    let Ok(bytes) = encode(&word) else { return };
    let mut gossip = SteeringGossip::new("eu".into(), 1);
    let now = some_moment();
    for (node, region) in SENDERS {
        let (node, region) = (NodeName::from(node), RegionName::from(region));
        drop(gossip.handle_datagram(now, &node, &region, &bytes));
        assert!(gossip.handle_datagram(now, &node, &region, &bytes).is_err(), "taken twice");
    }
    let own = gossip.sibling(&NodeName::from("b"), now);
    assert_eq!(own, gossip.region(&RegionName::from("us"), now));
    assert_eq!(gossip.sibling(&NodeName::from("c"), now), None);
}

/// Checks that a sibling's prompt is never longer than prompts may be.
fn prompt_datagram(input: &[u8]) {
    let Some(frame) = check_message::<Frame>(input) else { return };
    let config = SharingConfig { blocks_max: 256, chain_blocks_max: 32, ..Default::default() };
    let most = config.chain_blocks_max;
    let mut sharing = Sharing::new(config, frame.epoch);
    let Ok(bytes) = encode(&frame) else { return };
    for _ in 0..2 {
        let told = sharing.handle_datagram(&NodeName::from("b"), &bytes, |heard| {
            let (SiblingNews::Sent(_, blocks)
            | SiblingNews::Cached(_, blocks, _)
            | SiblingNews::Written(_, blocks, _)) = heard;
            assert!(blocks.len() <= most, "{} blocks", blocks.len());
        });
        drop(told);
        drop(sharing.flush());
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn targets_hold_on_kept_inputs_and_on_mutations_of_them() {
        spillway_fuzz::check(super::TARGETS);
    }
}
