//! The bytes of all messages, as they were when their version was made.

use bytes::Bytes;
use spillway_types::{ClusterId, DiskId, NodeId};

use super::*;
use crate::disk::{CommitNote, LogState};
use crate::ids::Member;
use crate::raft::{CommandFrame, Entry, Payload};
use crate::wire::DiskCount;

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
        entry(5, Payload::Normal(CommandFrame(b"command".as_slice().into()))),
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
    let news = News { age, asks_held: true, heartbeat_ms: 400 };
    let (version, entries) = (WireVersion::NEWEST, entries());
    let append = Append { version, ballot: ballot(), previous, committed, entries, news };
    check(FOLDER, "append", &append);
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
    check(FOLDER, "note", &CommitNote { disk: DiskId(2), serial: 5 });
}

#[test]
fn the_bytes_of_all_calls_are_those_on_file() {
    let candidacy = Candidacy { ballot: ballot(), last: Some(at(6, 3)), is_transfer: true };
    let command = Bytes::from_static(b"command");
    for (name, call) in [
        ("call_vote", Call::Vote(candidacy)),
        ("call_pre_vote", Call::PreVote(candidacy)),
        ("call_transfer", Call::Transfer { from: ballot(), to: NodeId(3), last: None }),
        ("call_read_index", Call::ReadIndex),
        ("call_propose", Call::Propose { command, limit_ms: 5_000 }),
        ("call_hello", Call::Hello),
        ("call_speaks", Call::Speaks(1)),
        ("call_backs", Call::Backs),
        ("call_compare", Call::Compare(report())),
    ] {
        spillway_codec::golden::check(FOLDER, name, &call);
    }
}

#[test]
fn the_bytes_of_all_answers_are_those_on_file() {
    let refusals = [
        ("refused_other_cluster", CallError::OtherCluster(ClusterId(1))),
        ("refused_other_node", CallError::OtherNode(introduction())),
        ("refused_not_you", CallError::NotYou),
        ("refused_not_leader", CallError::NotLeader(Some(NodeId(2)))),
        ("refused_unreadable", CallError::Unreadable),
        ("refused_damaged", CallError::Damaged),
        ("refused_not_now", CallError::NotNow),
        ("refused_stopped", CallError::Stopped),
        ("refused_busy", CallError::Busy),
    ];
    let refusals = refusals.map(|(name, refusal)| (name, Answer::Refused(refusal)));
    let outcome = Bytes::from_static(b"outcome");
    let answers = [
        ("answer_vote", Answer::Vote { ballot: ballot(), is_granted: true, last: None }),
        ("answer_transferred", Answer::Transferred),
        ("answer_read_index", Answer::ReadIndex(300)),
        ("answer_proposed", Answer::Proposed { index: 300, outcome }),
        ("answer_unknown", Answer::Unknown),
        ("answer_installed", Answer::Installed(ballot())),
        ("answer_hello", Answer::Hello(introduction())),
        ("answer_ready", Answer::Ready),
        ("answer_compared", Answer::Compared(report())),
    ];
    for (name, answer) in refusals.into_iter().chain(answers) {
        spillway_codec::golden::check(FOLDER, name, &answer);
    }
    let took = took();
    let conflict = Took { verdict: Verdict::Conflict(at(7, 6)), ..took.clone() };
    let higher = Took { verdict: Verdict::HigherVote(ballot()), ..took.clone() };
    for (name, answer) in [
        ("answer_speaks", Answer::Speaks(1)),
        ("answer_backs", Answer::Backs(Some(ballot()))),
        ("answer_took", Answer::Took(took)),
        ("answer_took_conflict", Answer::Took(conflict)),
        ("answer_took_higher", Answer::Took(higher)),
    ] {
        spillway_codec::golden::check(FOLDER, name, &answer);
    }
}

fn report() -> Report {
    let count = DiskCount { process: 9, began: 40, serial: 57, cleared: 0 };
    Report { count, digests: vec![(300, 1 << 100)], ahead: Some(80), is_double: true }
}

fn version_of(frame: &[u8]) -> u16 {
    let (head, _) = frame.split_first_chunk().unwrap();
    spillway_codec::FrameHeader::parse(head).unwrap().version
}

fn took() -> Took {
    Took {
        verdict: Verdict::Appended(Some(at(7, 6))),
        promise_ms: 1_300,
        held: Some(at(6, 3)),
        round_trips: vec![RoundTrip { to: NodeId(3), ms: 220 }],
    }
}

fn heartbeat(version: WireVersion) -> Append {
    let (ballot, entries, news) = (ballot(), Vec::new(), News::default());
    Append { version, ballot, previous: None, committed: None, entries, news }
}

/// A node reads nothing with a number later than its own, so what is written has the right number.
#[test]
fn entries_and_their_answers_have_the_version_that_is_asked_for() {
    for version in [WireVersion::OLDEST, WireVersion::NEWEST] {
        let append = Append { entries: entries(), ..heartbeat(version) };
        let frame = encode_append(&append).unwrap();
        assert_eq!(version_of(&frame), version.number());
        assert_eq!(spillway_codec::decode::<Append>(&frame).unwrap(), append);
        for answer in [Answer::Took(took()), Answer::Ready] {
            let frame = encode_answer(&answer, version).unwrap();
            assert_eq!(version_of(&frame), version.number());
        }
    }
}

#[test]
fn an_older_version_leaves_out_what_it_does_not_know() {
    let news = News { age: None, asks_held: true, heartbeat_ms: 400 };
    let append = Append { news, ..heartbeat(WireVersion::OLDEST) };
    let frame = encode_append(&append).unwrap();
    let read = spillway_codec::decode::<Append>(&frame).unwrap();
    assert_eq!(read, Append { news: News { asks_held: false, ..news }, ..append });
    let frame = encode_answer(&Answer::Took(took()), WireVersion::OLDEST).unwrap();
    let read = spillway_codec::decode::<Answer>(&frame).unwrap();
    let rest = Took { promise_ms: 0, held: None, round_trips: Vec::new(), ..took() };
    assert_eq!(read, Answer::Took(rest));
}

#[test]
fn two_nodes_speak_the_newest_that_both_know() {
    let (old, new) = (WireVersion::OLDEST, WireVersion::NEWEST);
    for (own, other, both) in
        [(old, 0, old), (old, 1, old), (new, 0, old), (new, 1, new), (new, 9, new)]
    {
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
    let command = || Bytes::from(vec![7; crate::COMMAND_BYTES_MAX]);
    let entry =
        Entry { log_id: at(7, 5).into(), payload: Payload::Normal(CommandFrame(command())) };
    let entry = EntryRecord::from(&entry);
    spillway_codec::encode(&entry).unwrap();
    let call = Call::Propose { command: command(), limit_ms: u32::MAX };
    spillway_codec::encode(&call).unwrap();
    // As many as a message is filled with.
    let entries = vec![entry; APPEND_BYTES_MAX / crate::COMMAND_BYTES_MAX];
    let append = Append { entries, ..heartbeat(WireVersion::NEWEST) };
    spillway_codec::encode(&append).unwrap();
    let outcome = Bytes::from(vec![7; crate::OUTCOME_BYTES_MAX]);
    spillway_codec::encode(&Answer::Proposed { index: u64::MAX, outcome }).unwrap();
    const { assert!(Append::BYTES_MAX < 2 << 20) };
}
