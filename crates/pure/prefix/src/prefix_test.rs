//! Properties of block hashes that any implementation has to keep.

use std::collections::BTreeSet;

use highway::{HighwayHash, Key, PortableHash};
use proptest::prelude::*;

use crate::{PrefixConfig, PrefixConfigError, PrefixHasher, Scope};

const KEY: [u64; 4] = [1, 2, 3, 4];
const SMALL: PrefixConfig = PrefixConfig { block_bytes: 32, blocks_max: 4_096 };
const LLAMA: Scope<'_> = Scope { model: "llama", adapter: "", salt: b"" };

fn hash_with(key: [u64; 4], config: PrefixConfig, scope: &Scope<'_>, prompt: &[u8]) -> Vec<u64> {
    PrefixHasher::new(key, config).unwrap().hash(scope, prompt).as_slice().to_vec()
}

fn hash(scope: &Scope<'_>, prompt: &[u8]) -> Vec<u64> {
    hash_with(KEY, SMALL, scope, prompt)
}

/// Computes the hashes in the slow and obvious way: every prefix as a whole, without SIMD.
fn hash_every_prefix(config: PrefixConfig, scope: &Scope<'_>, prompt: &[u8]) -> Vec<u64> {
    let key = scope.derive_key(&Key(KEY));
    let ends = (config.block_bytes..=prompt.len()).step_by(config.block_bytes);
    let whole = |end| PortableHash::new(Key(key.0)).hash64(&prompt[..end]);
    ends.take(config.blocks_max).map(whole).collect()
}

fn bytes(len: impl Into<prop::collection::SizeRange>) -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(any::<u8>(), len)
}

proptest! {
    #[test]
    fn each_entry_is_the_keyed_hash_of_the_whole_prefix(
        prompt in bytes(0..1_500),
        blocks in 1..8_usize,
        blocks_max in 1..20_usize,
    ) {
        let config = PrefixConfig { block_bytes: 32 * blocks, blocks_max };
        prop_assert_eq!(
            hash_with(KEY, config, &LLAMA, &prompt),
            hash_every_prefix(config, &LLAMA, &prompt)
        );
    }

    #[test]
    fn what_follows_a_prompt_continues_its_chain(
        prompt in bytes(0..1_500),
        rest in bytes(0..1_500),
        blocks_max in 1..60_usize,
    ) {
        let config = PrefixConfig { block_bytes: 32, blocks_max };
        let hasher = PrefixHasher::new(KEY, config).unwrap();
        let mut stream = hasher.start(&LLAMA);
        stream.update(&prompt);
        let first = stream.take_blocks();
        prop_assert_eq!(&first, &hasher.hash(&LLAMA, &prompt));
        stream.update(&rest);
        let all = [first.as_slice(), stream.finish().as_slice()].concat();
        prop_assert_eq!(all, hash_with(KEY, config, &LLAMA, &[prompt, rest].concat()));
    }

    #[test]
    fn prompts_share_as_many_entries_as_full_blocks(
        common in bytes(0..600),
        left in bytes(0..300),
        right in bytes(0..300),
    ) {
        let (left, right) = ([&common[..], &left].concat(), [&common[..], &right].concat());
        let same_bytes = left.iter().zip(&right).take_while(|(l, r)| l == r).count();
        let (left, right) = (hash(&LLAMA, &left), hash(&LLAMA, &right));
        let same_entries = left.iter().zip(&right).take_while(|(l, r)| l == r).count();
        prop_assert_eq!(same_entries, same_bytes / 32);
        // Behind the first difference no hash agrees again, even where the bytes are equal.
        prop_assert!(left.iter().zip(&right).skip(same_entries).all(|(l, r)| l != r));
    }

    #[test]
    fn one_changed_bit_changes_its_block_and_all_later_ones(
        prompt in bytes(64..600),
        bit in any::<prop::sample::Index>(),
    ) {
        let bit = bit.index(prompt.len() * 8);
        let mut changed = prompt.clone();
        changed[bit / 8] ^= 1 << (bit % 8);
        let (before, after) = (hash(&LLAMA, &prompt), hash(&LLAMA, &changed));
        for (block, (before, after)) in before.iter().zip(&after).enumerate() {
            prop_assert_eq!(before == after, block < bit / 8 / 32);
        }
    }

    #[test]
    fn how_a_prompt_was_cut_makes_no_difference(
        pieces in prop::collection::vec(bytes(0..100), 0..30),
        blocks in 1..8_usize,
        blocks_max in 1..20_usize,
    ) {
        let config = PrefixConfig { block_bytes: 32 * blocks, blocks_max };
        let hasher = PrefixHasher::new(KEY, config).unwrap();
        let mut stream = hasher.start(&LLAMA);
        pieces.iter().for_each(|piece| stream.update(piece));
        prop_assert_eq!(stream.finish(), hasher.hash(&LLAMA, &pieces.concat()));
    }

    #[test]
    fn another_key_shares_no_entry(prompt in bytes(32..300), word in 0..4_usize, flip in 1..u64::MAX) {
        let mut key = KEY;
        key[word] ^= flip;
        let (own, others) = (hash(&LLAMA, &prompt), hash_with(key, SMALL, &LLAMA, &prompt));
        prop_assert!(own.iter().all(|entry| !others.contains(entry)));
    }

    #[test]
    fn another_scope_shares_no_entry(
        prompt in bytes(32..300),
        left in ("[ab]{0,2}", "[ab]{0,2}", "[ab]{0,2}"),
        right in ("[ab]{0,2}", "[ab]{0,2}", "[ab]{0,2}"),
    ) {
        // With so few short texts, many pairs are equal once their fields are joined.
        let scope = |(model, adapter, salt): &(String, String, String)| {
            hash(&Scope { model, adapter, salt: salt.as_bytes() }, &prompt)
        };
        let (of_left, of_right) = (scope(&left), scope(&right));
        if left == right {
            prop_assert_eq!(of_left, of_right);
        } else {
            prop_assert!(of_left.iter().all(|entry| !of_right.contains(entry)));
        }
    }
}

#[test]
fn the_same_text_in_another_field_is_another_scope() {
    let prompt = [b'x'; 32];
    let scopes = [
        Scope::default(),
        Scope { model: "a", ..Scope::default() },
        Scope { adapter: "a", ..Scope::default() },
        Scope { salt: b"a", ..Scope::default() },
        Scope { model: "a\0", ..Scope::default() },
    ];
    let firsts: BTreeSet<u64> = scopes.iter().map(|scope| hash(scope, &prompt)[0]).collect();
    assert_eq!(firsts.len(), scopes.len());
}

#[test]
fn repeated_blocks_differ_by_their_place() {
    let entries = hash(&LLAMA, &[7; 32 * 1_000]);
    assert_eq!(entries.iter().collect::<BTreeSet<_>>().len(), 1_000);
}

#[test]
fn a_partial_block_and_what_is_beyond_the_limit_are_not_hashed() {
    let config = PrefixConfig { block_bytes: 64, blocks_max: 3 };
    let count = |prompt_bytes| hash_with(KEY, config, &LLAMA, &vec![1; prompt_bytes]).len();
    assert_eq!([0, 63, 64, 127, 128, 192, 256, 10_000].map(count), [0, 0, 1, 1, 2, 3, 3, 3]);
}

/// During an upgrade, nodes of both versions exchange hashes, so the values must never change.
#[test]
fn values_are_those_of_every_earlier_version() {
    let prompt: Vec<u8> = (0..1_024_u32).map(|at| (at * 7 + at / 256) as u8).collect();
    let tenant = Scope { model: "llama-3.1-8b", adapter: "sql", salt: b"tenant 7" };
    let config = PrefixConfig::default();
    assert_eq!(
        hash_with(KEY, config, &Scope { model: "llama-3.1-8b", ..Scope::default() }, &prompt),
        [15830853338446982612, 10916625418245233440, 13373681638343303126, 3300395217159285789]
    );
    assert_eq!(
        hash_with([u64::MAX; 4], config, &tenant, &prompt),
        [12462969928254873336, 17733822710725648035, 8118856382001005952, 4042955418533910115]
    );
}

#[test]
fn values_outside_their_limits_are_refused() {
    let check = |block_bytes, blocks_max| {
        PrefixHasher::new(KEY, PrefixConfig { block_bytes, blocks_max }).map(drop)
    };
    for block_bytes in [0, 16, 33, 100, 65_536 + 32] {
        assert_eq!(check(block_bytes, 1), Err(PrefixConfigError::BlockBytes(block_bytes)));
    }
    for blocks_max in [0, 1_048_577] {
        assert_eq!(check(32, blocks_max), Err(PrefixConfigError::BlocksMax(blocks_max)));
    }
    assert_eq!([check(32, 1), check(65_536, 1_048_576)], [Ok(()), Ok(())]);
}

#[test]
fn debug_output_holds_no_secret() {
    let hasher = PrefixHasher::new([0xDEAD_BEEF_u64; 4], SMALL).unwrap();
    let mut stream = hasher.start(&LLAMA);
    stream.update(&[1; 40]);
    assert_eq!(
        format!("{hasher:?} {stream:?}"),
        "PrefixHasher { config: PrefixConfig { block_bytes: 32, blocks_max: 4096 }, .. } \
         PrefixStream { blocks: 1, .. }"
    );
}
