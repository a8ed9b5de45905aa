//! Tests of what the index learns from replies and counters.

use std::collections::BTreeMap;

use super::index_test::{SMALL, chain_of, found};
use crate::FineIndex;

#[test]
fn a_reply_that_found_less_cached_makes_everything_older_go() {
    let (mut index, reader) = FineIndex::new(SMALL);
    let holder = index.holder(1).unwrap();
    let [old, asked, new] = [1, 2, 3].map(|number| chain_of(number, 40));
    for chain in [&old, &asked, &new] {
        index.insert(holder, chain);
        index.correct(holder, chain, 0);
    }
    index.insert(holder, &asked);
    index.correct(holder, &asked, 36);
    assert_eq!(index.stats().corrections, 0, "an eighth less is within what can't be known");
    index.insert(holder, &old);
    index.correct(holder, &old, 12);
    assert_eq!(index.stats().corrections, 0, "nothing is older than the block that was missing");
    for chain in [&old, &asked, &new] {
        assert_eq!(found(&reader, chain), BTreeMap::from([(0, 40)]));
    }
    // Order of use: new, asked, old. If `asked` is gone, everything used before it is gone too.
    index.insert(holder, &asked);
    index.correct(holder, &asked, 0);
    assert_eq!(index.stats().corrections, 40);
    assert_eq!(found(&reader, &new), BTreeMap::new());
    assert_eq!(found(&reader, &old), BTreeMap::from([(0, 40)]));
    assert_eq!(found(&reader, &asked), BTreeMap::from([(0, 40)]), "it is there since the request");
}

#[test]
fn only_what_is_older_than_the_first_missing_block_goes() {
    let (mut index, reader) = FineIndex::new(SMALL);
    let holder = index.holder(1).unwrap();
    let [asked, other] = [1, 2].map(|number| chain_of(number, 40));
    let sibling = [&asked[..20], &chain_of(3, 20)].concat();
    for chain in [&chain_of(4, 40), &asked, &other, &sibling] {
        index.insert(holder, chain);
        index.correct(holder, chain, 20);
    }
    // The first half was used by its sibling just before, the second half long ago.
    index.insert(holder, &asked);
    index.correct(holder, &asked, 20);
    assert_eq!(index.stats().corrections, 40);
    for (chain, blocks) in [(&chain_of(4, 40), 0), (&asked, 40), (&other, 40), (&sibling, 40)] {
        assert_eq!(found(&reader, chain).get(&0).copied().unwrap_or(0), blocks);
    }
}

#[test]
fn requests_that_are_not_answered_yet_prove_nothing() {
    let (mut index, reader) = FineIndex::new(SMALL);
    let holder = index.holder(1).unwrap();
    let [old, new] = [1, 2].map(|number| chain_of(number, 40));
    index.insert(holder, &old);
    index.correct(holder, &old, 0);
    // Two requests with one prompt at the same time: the second finds nothing cached yet.
    let [first, second] = [[&new[..], &[1]].concat(), [&new[..], &[2]].concat()];
    index.insert(holder, &first);
    index.insert(holder, &second);
    index.correct(holder, &first, 0);
    index.correct(holder, &second, 0);
    assert_eq!(index.stats().corrections, 0);
    assert_eq!(found(&reader, &old), BTreeMap::from([(0, 40)]));
}

#[test]
fn what_a_request_that_was_never_read_would_have_brought_goes_and_nothing_else() {
    let (mut index, reader) = FineIndex::new(SMALL);
    let [holder, other] = [1, 2].map(|identity| index.holder(identity).unwrap());
    let known = chain_of(1, 20);
    let asked = [&known[..], &chain_of(2, 20)].concat();
    index.insert(holder, &known);
    index.insert(other, &asked);
    index.insert(holder, &asked);
    assert_eq!(found(&reader, &asked), BTreeMap::from([(0, 40), (1, 40)]));
    index.take_back(holder, &asked);
    assert_eq!(found(&reader, &asked), BTreeMap::from([(0, 20), (1, 40)]));
    assert_eq!(index.stats().corrections, 20);
    // No belief about the request is left.
    index.correct(holder, &asked, 0);
    index.take_back(holder, &asked);
    assert_eq!(found(&reader, &asked), BTreeMap::from([(0, 20), (1, 40)]));
}

#[test]
fn what_another_request_uses_too_stays_when_one_is_taken_back() {
    let (mut index, reader) = FineIndex::new(SMALL);
    let holder = index.holder(1).unwrap();
    let common = chain_of(1, 20);
    let [first, second] = [2, 3].map(|number| [&common[..], &chain_of(number, 20)].concat());
    index.insert(holder, &first);
    index.insert(holder, &second);
    index.take_back(holder, &first);
    assert_eq!(found(&reader, &first), BTreeMap::from([(0, 20)]), "the other one brings that");
    assert_eq!(found(&reader, &second), BTreeMap::from([(0, 40)]));
    // The reply to the other request is judged as usual.
    index.correct(holder, &second, 0);
    assert_eq!(found(&reader, &second), BTreeMap::from([(0, 40)]));
}

#[test]
fn counters_that_show_fewer_hits_shrink_what_a_cache_is_taken_to_hold() {
    let (mut index, _) = FineIndex::new(SMALL);
    let holder = index.holder(1).unwrap();
    index.set_capacity(holder, 1_000);
    for number in 0..100 {
        index.insert(holder, &chain_of(number, 10));
    }
    index.note_hit_ratio(holder, 0, 0);
    index.note_hit_ratio(holder, 1_000, 950);
    assert_eq!(index.stats().pairs, 1_000);
    index.note_hit_ratio(holder, 1_000, 700);
    assert_eq!(index.stats().pairs, 700);
    index.note_hit_ratio(holder, 1_000, 0);
    assert_eq!(index.stats().pairs, 350, "at most half at once");
    index.note_hit_ratio(holder, 1_000, 1_000);
    for number in 0..100 {
        index.insert(holder, &chain_of(number, 10));
    }
    assert_eq!(index.stats().pairs, 350 + 350 / 16 + 1);
    (0..100).for_each(|_| index.note_hit_ratio(holder, 1_000, 2_000));
    for number in 0..200 {
        index.insert(holder, &chain_of(number, 10));
    }
    assert_eq!(index.stats().pairs, 1_000, "never more than was told");
}

#[test]
fn a_reply_is_known_behind_its_prompt_and_goes_before_it() {
    let (mut index, reader) = FineIndex::new(SMALL);
    let holder = index.holder(1).unwrap();
    index.set_capacity(holder, 60);
    let whole = chain_of(1, 40);
    index.insert(holder, &whole[..30]);
    index.extend(holder, &whole, 30);
    assert_eq!(found(&reader, &whole), BTreeMap::from([(0, 40)]));
    index.insert(holder, &chain_of(2, 25));
    assert_eq!(found(&reader, &whole), BTreeMap::from([(0, 35)]), "its end is the oldest");
    // Blocks that were evicted while the reply was written are there again with the reply.
    index.insert(holder, &chain_of(3, 60));
    assert_eq!(found(&reader, &whole), BTreeMap::new());
    index.extend(holder, &whole, 30);
    assert_eq!(found(&reader, &whole), BTreeMap::from([(0, 40)]));
    let endless = chain_of(4, 100);
    index.extend(holder, &endless, 30);
    assert_eq!(found(&reader, &endless), BTreeMap::from([(0, 60)]), "as much as fits");
    index.extend(holder, &endless, 200);
    assert_eq!(index.stats().pairs, 60);
}

#[test]
fn a_reply_that_the_next_turn_does_not_find_proves_nothing_about_older_blocks() {
    let (mut index, reader) = FineIndex::new(SMALL);
    let holder = index.holder(1).unwrap();
    let [old, whole] = [1, 2].map(|number| chain_of(number, 40));
    for chain in [&old[..], &whole[..20]] {
        index.insert(holder, chain);
        index.correct(holder, chain, 0);
    }
    index.extend(holder, &whole, 20);
    index.insert(holder, &whole);
    index.correct(holder, &whole, 20);
    assert_eq!(index.stats().corrections, 0);
    assert_eq!(found(&reader, &old), BTreeMap::from([(0, 40)]));
    // A prompt that is missing does, whether a reply followed or not.
    index.extend(holder, &[&whole[..], &chain_of(3, 5)].concat(), 40);
    index.insert(holder, &whole);
    index.correct(holder, &whole, 0);
    assert_eq!(found(&reader, &old), BTreeMap::new());
    assert_eq!(index.stats().corrections, 45);
}

#[test]
fn replies_that_next_turns_never_find_are_hardly_believed_until_one_is_found() {
    let (mut index, reader) = FineIndex::new(SMALL);
    let holder = index.holder(1).unwrap();
    let mut believed_after = |chats: std::ops::Range<u32>, is_cached: bool| {
        let mut believed = 0;
        for chat in chats {
            let whole = chain_of(chat, 40);
            index.insert(holder, &whole[..20]);
            index.correct(holder, &whole[..20], 0);
            index.extend(holder, &whole, 20);
            believed += u32::from(found(&reader, &whole)[&0] == 40);
            index.insert(holder, &whole);
            index.correct(holder, &whole, if is_cached { 40 } else { 20 });
        }
        believed
    };
    assert_eq!(believed_after(0..20, true), 20);
    assert_eq!(believed_after(20..28, false), 8);
    let some = believed_after(100..200, false);
    assert!((1..20).contains(&some), "{some}");
    let most = believed_after(200..300, true);
    assert!(most > 80, "{most}");
}
