//! Fuzz targets for all input of the state: entries, snapshots and the texts of credentials.

use spillway_codec::decode;
use spillway_codec::fuzz::check_message;

use crate::entry::EntryFrame;
use crate::state::Layout;
use crate::{
    Actor, Command, Entry, Expect, Item, JoinText, KeyText, Membership, Outcome, Proposer, State,
    TokenTerms, VoterFacts, dry_run, voters,
};

/// A target: the folder name of its inputs, and the function that runs one input.
pub type Target = (&'static str, fn(&[u8]));

/// The targets of this crate.
pub const TARGETS: &[Target] =
    &[("log_entry", log_entry), ("snapshot", snapshot), ("credential", credential)];

/// Token that signed the kept input `join_node`.
const TOKEN: &str = "swj_t_0101010101010101010101010101010101010101010101010101010101010101";

/// Commands of all kinds about nodes, regions and replicas of the kept snapshots. Every state that
/// a snapshot gives must survive them.
const COMMANDS: [&str; 27] = [
    include_str!("../golden/put_split_with_rollout.v1.hex"),
    include_str!("../golden/change_rollout.v1.hex"),
    include_str!("../golden/replica_weight.v1.hex"),
    include_str!("../golden/put_split_by_header.v1.hex"),
    include_str!("../golden/replica_state.v1.hex"),
    include_str!("../golden/renew_leases.v1.hex"),
    include_str!("../golden/report_health.v1.hex"),
    include_str!("../golden/hot_blocks.v1.hex"),
    include_str!("../golden/lease_shares.v1.hex"),
    include_str!("../golden/declare_country.v1.hex"),
    include_str!("../golden/region_weight.v1.hex"),
    include_str!("../golden/region_state.v1.hex"),
    include_str!("../golden/put_limit.v1.hex"),
    include_str!("../golden/put_tenant.v1.hex"),
    include_str!("../golden/put_key.v1.hex"),
    include_str!("../golden/put_join_token.v1.hex"),
    include_str!("../golden/revoke_key.v1.hex"),
    include_str!("../golden/register_replica.v1.hex"),
    include_str!("../golden/register_node.v1.hex"),
    include_str!("../golden/join_node.v1.hex"),
    include_str!("../golden/node_role.v1.hex"),
    include_str!("../golden/rotate_prefix_key.v1.hex"),
    include_str!("../golden/expire_leases.v1.hex"),
    include_str!("../golden/remove_replica.v1.hex"),
    include_str!("../golden/record_order.v1.hex"),
    include_str!("../golden/form.v1.hex"),
    include_str!("../golden/replace_cluster.v1.hex"),
];

/// Checks that an entry reads back as it was, and has the same effect on equal states.
fn log_entry(input: &[u8]) {
    // The command of an entry has a checksum of its own, which fuzzing seldom hits: try it without.
    if let Some(command) = check_message::<Command>(input) {
        check_entry(formed(), &entry(Actor::Node, 1_800_000_000_003, command));
    }
    let Some(frame) = check_message::<EntryFrame>(input) else { return };
    let Ok(entry) = Entry::try_from(frame) else { return };
    if let Ok(bytes) = entry.to_bytes() {
        assert_eq!(Entry::from_bytes(&bytes).as_ref(), Ok(&entry));
    }
    check_entry(formed(), &entry);
}

fn check_entry(mut state: State, entry: &Entry) {
    let told = dry_run(&state, entry);
    let mut other = state.clone();
    let nodes = state.records().nodes.len();
    let effect = state.apply(7, entry);
    assert_eq!(effect, other.apply(7, entry));
    assert_eq!(state.digest(), other.digest());
    if let (Command::JoinNode { node, token }, Some(cluster)) = (&entry.command, state.cluster())
        && state.records().nodes.len() > nodes
    {
        let signed = JoinText::read(TOKEN).map(|text| text.sign(cluster, node));
        assert_eq!(signed.as_ref(), Some(token), "a signature that nobody made lets a node in");
    }
    if let (Ok(_), None) = (&told, entry.request) {
        let is_done = matches!(effect.outcome, Outcome::Applied { .. } | Outcome::Unchanged);
        assert!(is_done, "a dry run promised it: {:?}", effect.outcome);
    }
    if let Ok(bytes) = state.to_snapshot() {
        assert_eq!(State::from_snapshot(&bytes).as_ref(), Ok(&state));
    }
}

/// Checks that a snapshot with a right checksum and digest is refused, or gives a working state.
fn snapshot(input: &[u8]) {
    let Some(layout) = check_message::<Layout>(input) else { return };
    let Ok(bytes) = State::from(layout).to_snapshot() else { return };
    let Ok(mut state) = State::from_snapshot(&bytes) else { return };
    assert_eq!(state.to_snapshot().as_ref(), Ok(&bytes), "it is written as it was read");
    let nodes: Vec<_> = state.records().nodes.iter().map(|(id, _)| *id).collect();
    let sight = VoterFacts { live: nodes.iter().copied().collect(), caught_up: Default::default() };
    let current = Membership { voters: nodes.into_iter().take(5).collect(), ..Default::default() };
    let _plan = voters(&state, &sight, &current);
    for (at, hex) in COMMANDS.iter().enumerate() {
        let Some(command) = command(hex) else { continue };
        for actor in [Actor::Node, Actor::Operator("ada".to_owned())] {
            let stamp_ms = state.stamp_ms().saturating_add(at as u64);
            let entry = entry(actor, stamp_ms, command.clone());
            drop(dry_run(&state, &entry));
            drop(state.apply(state.applied().saturating_add(1), &entry));
        }
    }
    for pool in state.shares().pools().values() {
        let _taken = pool.taken();
    }
}

/// Checks that each text that is read as a credential has the form of one, and shows no secret.
fn credential(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    if let Some(token) = JoinText::read(text) {
        assert!(!token.id.is_empty() && text.starts_with("swj_"));
    }
    if let Some(key) = KeyText::read(text) {
        assert!(KeyText::is_marked(text) && !key.id.is_empty());
        let secret = &text[text.len() - 64..];
        let is_shown = format!("{key:?}").contains(secret) && !key.id.contains(secret);
        assert!(!is_shown, "a secret is shown");
    }
}

/// Returns the state of a cluster of the nodes in the kept commands, with a join token.
fn formed() -> State {
    let mut state = State::new();
    let Some(Command::Form(form)) = command(include_str!("../golden/form.v1.hex")) else {
        return state;
    };
    let mut then = |index: u64, actor, command| {
        drop(state.apply(index, &entry(actor, 1_800_000_000_000 + index, command)));
    };
    then(1, Actor::Node, Command::Form(form));
    if let Some(token) = JoinText::read(TOKEN) {
        let key = token.public_key();
        let terms =
            TokenTerms { key, region: None, valid_ms: 600_000, uses: 9, is_operator: false };
        let item = Item::JoinToken(token.id.into(), terms);
        then(2, Actor::Operator("ada".to_owned()), Command::Put { item, expect: Expect::Any });
    }
    state
}

fn entry(actor: Actor, stamp_ms: u64, command: Command) -> Entry {
    let proposer = Proposer { node: "a1".into(), region: "a".into() };
    Entry { stamp_ms, proposer, request: None, actor, command }
}

fn command(hex: &str) -> Option<Command> {
    let digits: Vec<u8> = hex.bytes().filter(u8::is_ascii_hexdigit).collect();
    let byte = |pair| u8::from_str_radix(std::str::from_utf8(pair).ok()?, 16).ok();
    decode(&digits.chunks_exact(2).map(byte).collect::<Option<Vec<u8>>>()?).ok()
}

#[cfg(test)]
mod tests {
    #[test]
    fn targets_hold_on_kept_inputs_and_on_mutations_of_them() {
        spillway_fuzz::check(super::TARGETS);
    }

    #[test]
    fn the_commands_that_snapshots_have_to_bear_can_be_read() {
        for hex in super::COMMANDS {
            assert!(super::command(hex).is_some(), "{hex}");
        }
        assert_eq!(super::formed().records().join_tokens.len(), 1);
    }
}
