//! Fuzz targets of the messages about the log that nodes send to each other.

use spillway_codec::fuzz::check_message;

use crate::raft::{Members, Vote};
use crate::wire::{Answer, Append, Call, EntryRecord, Offer, Opening, Parcel};

/// A target: the name of the folder of its inputs, and what runs one of them.
pub type Target = (&'static str, fn(&[u8]));

/// The targets of this crate.
pub const TARGETS: &[Target] = &[
    ("consensus_opening", opening),
    ("consensus_append", append),
    ("consensus_call", call),
    ("consensus_offer", offer),
    ("consensus_answer", answer),
];

fn opening(input: &[u8]) {
    let _opening = check_message::<Opening>(input);
    let _parcel = check_message::<Parcel>(input);
}

/// Entries that are taken for the log's own types are the same when they are written again.
fn append(input: &[u8]) {
    let Some(append) = check_message::<Append>(input) else { return };
    let _vote = Vote::from(append.ballot);
    for record in append.entries {
        if let Ok(entry) = record.clone().into_entry() {
            assert_eq!(EntryRecord::from(&entry).at(), record.at());
        }
    }
}

fn call(input: &[u8]) {
    if let Some(Call::Vote(candidacy)) = check_message::<Call>(input) {
        let _vote = Vote::from(candidacy.ballot);
    }
}

/// Members that contradict each other are refused and not taken for a membership.
fn offer(input: &[u8]) {
    let Some(offer) = check_message::<Offer>(input) else { return };
    drop(Members::try_from(offer.head.members));
}

fn answer(input: &[u8]) {
    drop(check_message::<Answer>(input));
}

#[cfg(test)]
mod tests {
    #[test]
    fn targets_hold_on_kept_inputs_and_on_mutations_of_them() {
        spillway_fuzz::check(super::TARGETS);
    }
}
