//! The bytes of all messages, as they were when their version was made.

use super::version::{AppendOne, VersionOne};
use super::*;
use crate::disk::{LogState, Note};
use crate::ids::{ClusterId, DiskId, Member, NodeId};
use crate::raft::{Command, Entry, Payload};

const FOLDER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/golden");

fn at(term: u64, index: u64) -> Point {
    Point { term, index }
}

fn ballot() -> Ballot {
    Ballot { term: 7, node: NodeId(2), is_won: true }
}

fn members() -> MembersRecord {
    let member = Member { name: "eu-1".into(), region: "eu".into(), disk: DiskId(1 << 100) };
    MembersRecord::only(NodeId(3), &member)
}

fn introduction() -> Introduction {
    Introduction { node: NodeId(1), disk: DiskId(5), cluster: Some(ClusterId(6)) }
}

fn entries() -> Vec<EntryRecord> {
    let entry = |index, payload| EntryRecord::from(&Entry { log_id: at(7, index).into(), payload });
    vec![
        entry(4, Payload::Blank),
        entry(5, Payload::Normal(Command(b"command".as_slice().into()))),
        EntryRecord::of_members(at(7, 6), members()),
    ]
}

fn head() -> SnapshotHead {
    SnapshotHead {
        last: Some(at(7, 6)),
        members_at: Some(at(7, 6)),
        members: members(),
        bytes: 1_000,
        checksum: 0xdead_beef,
    }
}

#[test]
fn the_bytes_of_all_messages_are_those_on_file() {
    use spillway_codec::golden::check;
    for (name, entry) in ["entry_blank", "entry_command", "entry_members"].iter().zip(entries()) {
        check(FOLDER, name, &entry);
    }
    let to = Some(Addressee { node: NodeId(3), disk: Some(DiskId(4)) });
    let (cluster, from) = (Some(ClusterId(9)), NodeId(1));
    for (name, purpose) in [
        ("opening_append", Purpose::Append),
        ("opening_call", Purpose::Call),
        ("opening_snapshot", Purpose::Snapshot),
    ] {
        check(FOLDER, name, &Opening { cluster, from, to, purpose });
    }
    let (previous, committed) = (Some(at(6, 3)), Some(at(6, 2)));
    let age = Some(Age { ms: 300, next_index: 4 });
    let news = Some(News { age, asks_held: true, heartbeat_ms: 400 });
    let append = Append { ballot: ballot(), previous, committed, entries: entries(), news };
    check(FOLDER, "append", &append);
    let one = AppendOne { ballot: ballot(), previous, committed, entries: entries() };
    check(FOLDER, "append", &one);
    let offer = Offer { ballot: ballot(), head: head(), transfer: 300 };
    check(FOLDER, "offer", &offer);
    check(FOLDER, "parcel", &Parcel { transfer: 300, bytes: 70_000 });
    let state = LogState {
        cluster,
        serial: 5,
        ballot: Some(ballot()),
        committed,
        purged: previous,
        ..LogState::new(NodeId(1), DiskId(2))
    };
    check(FOLDER, "log_state", &state);
    check(FOLDER, "note", &Note { disk: DiskId(2), serial: 5 });
}

#[test]
fn the_bytes_of_all_calls_are_those_on_file() {
    let candidacy = Candidacy { ballot: ballot(), last: Some(at(6, 3)), is_transfer: true };
    let command = Octets(b"command".as_slice().into());
    for (name, call) in [
        ("call_vote", Call::Vote(candidacy)),
        ("call_pre_vote", Call::PreVote(candidacy)),
        ("call_transfer", Call::Transfer { from: ballot(), to: NodeId(3), last: None }),
        ("call_read_index", Call::ReadIndex),
        ("call_propose", Call::Propose { command, limit_ms: 5_000 }),
        ("call_hello", Call::Hello),
    ] {
        spillway_codec::golden::check(FOLDER, name, &VersionOne(call));
    }
    spillway_codec::golden::check(FOLDER, "call_speaks", &Call::Speaks(2));
}

#[test]
fn the_bytes_of_all_answers_are_those_on_file() {
    let refusals = [
        ("refused_other_cluster", Refusal::OtherCluster(ClusterId(1))),
        ("refused_other_node", Refusal::OtherNode(introduction())),
        ("refused_not_you", Refusal::NotYou),
        ("refused_not_leader", Refusal::NotLeader(Some(NodeId(2)))),
        ("refused_unreadable", Refusal::Unreadable),
        ("refused_damaged", Refusal::Damaged),
        ("refused_not_now", Refusal::NotNow),
        ("refused_stopped", Refusal::Stopped),
        ("refused_busy", Refusal::Busy),
    ];
    let refusals = refusals.map(|(name, refusal)| (name, Answer::Refused(refusal)));
    let outcome = Octets(b"outcome".as_slice().into());
    let answers = [
        ("answer_appended", Answer::Appended(Some(at(7, 6)))),
        ("answer_conflict", Answer::Conflict(at(7, 6))),
        ("answer_higher_vote", Answer::HigherVote(ballot())),
        ("answer_vote", Answer::Vote { ballot: ballot(), is_granted: true, last: None }),
        ("answer_transferred", Answer::Transferred),
        ("answer_read_index", Answer::ReadIndex(300)),
        ("answer_proposed", Answer::Proposed { index: 300, outcome }),
        ("answer_unknown", Answer::Unknown),
        ("answer_installed", Answer::Installed(ballot())),
        ("answer_hello", Answer::Hello(introduction())),
        ("answer_ready", Answer::Ready),
    ];
    for (name, answer) in refusals.into_iter().chain(answers) {
        spillway_codec::golden::check(FOLDER, name, &VersionOne(answer));
    }
    let took = Took {
        verdict: Verdict::Appended(Some(at(7, 6))),
        promise_ms: 1_300,
        held: Some(at(6, 3)),
        round_trips: vec![RoundTrip { to: NodeId(3), ms: 220 }],
    };
    let conflict = Took { verdict: Verdict::Conflict(at(7, 6)), ..took.clone() };
    let higher = Took { verdict: Verdict::HigherVote(ballot()), ..took.clone() };
    for (name, answer) in [
        ("answer_speaks", Answer::Speaks(2)),
        ("answer_took", Answer::Took(took)),
        ("answer_took_conflict", Answer::Took(conflict)),
        ("answer_took_higher", Answer::Took(higher)),
    ] {
        spillway_codec::golden::check(FOLDER, name, &answer);
    }
}

fn version_of(frame: &[u8]) -> u16 {
    let (head, _) = frame.split_first_chunk().unwrap();
    spillway_codec::FrameHeader::parse(head).unwrap().version
}

/// A node of version 1 reads nothing with a later number, and nothing that it does not know.
#[test]
fn what_version_1_knows_is_written_as_version_1_and_all_else_is_not() {
    let append = Append {
        ballot: ballot(),
        previous: None,
        committed: None,
        entries: entries(),
        news: None,
    };
    let newer = Append { news: Some(News::default()), ..append.clone() };
    for (append, version) in [(append, 1), (newer, 2)] {
        let frame = encode_append(append.clone()).unwrap();
        assert_eq!(version_of(&frame), version);
        assert_eq!(spillway_codec::decode::<Append>(&frame).unwrap(), append);
    }
    for (call, version) in [(Call::Hello, 1), (Call::ReadIndex, 1), (Call::Speaks(2), 2)] {
        let frame = encode_call(call.clone()).unwrap();
        assert_eq!(version_of(&frame), version);
        assert_eq!(spillway_codec::decode::<Call>(&frame).unwrap(), call);
    }
    for (answer, version) in [(Answer::Ready, 1), (Answer::Speaks(2), 2)] {
        let frame = encode_answer(answer.clone()).unwrap();
        assert_eq!(version_of(&frame), version);
        assert_eq!(spillway_codec::decode::<Answer>(&frame).unwrap(), answer);
    }
}

#[test]
fn two_nodes_speak_the_newest_that_both_know() {
    for (own, other, both) in [
        (WireVersion::One, 1, WireVersion::One),
        (WireVersion::One, 2, WireVersion::One),
        (WireVersion::Two, 1, WireVersion::One),
        (WireVersion::Two, 2, WireVersion::Two),
        (WireVersion::Two, 9, WireVersion::Two),
    ] {
        assert_eq!(own.common(other), both, "{own:?} {other}");
    }
}

#[test]
fn entries_survive_the_way_to_openraft_and_back() {
    for record in entries() {
        let entry = record.clone().into_entry().unwrap();
        assert_eq!(EntryRecord::from(&entry), record);
    }
    for is_won in [true, false] {
        let ballot = Ballot { is_won, ..ballot() };
        assert_eq!(Ballot::from(&crate::raft::Vote::from(ballot)), ballot);
    }
}

#[test]
fn the_longest_command_fits_into_all_that_carries_it() {
    use spillway_codec::Wire;
    let command = || bytes::Bytes::from(vec![7; crate::COMMAND_BYTES_MAX]);
    let entry = Entry { log_id: at(7, 5).into(), payload: Payload::Normal(Command(command())) };
    let entry = EntryRecord::from(&entry);
    spillway_codec::encode(&entry).unwrap();
    let call = Call::Propose { command: Octets(command()), limit_ms: u32::MAX };
    spillway_codec::encode(&call).unwrap();
    // As many as a message is filled with.
    let entries = vec![entry; APPEND_BYTES_MAX / crate::COMMAND_BYTES_MAX];
    let news = Some(News::default());
    let append = Append { ballot: ballot(), previous: None, committed: None, entries, news };
    spillway_codec::encode(&append).unwrap();
    let outcome = Octets(vec![7; crate::OUTCOME_BYTES_MAX].into());
    spillway_codec::encode(&Answer::Proposed { index: u64::MAX, outcome }).unwrap();
    const { assert!(Append::BYTES_MAX < 2 << 20) };
}
