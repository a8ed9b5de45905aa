use serde_json::json;

use super::*;

fn batch(events: &serde_json::Value) -> Vec<u8> {
    rmp_serde::to_vec(&json!([1.5, events, 0])).unwrap()
}

fn stored() -> serde_json::Value {
    json!({
        "type": "BlockStored",
        "block_hashes": [1, u64::MAX],
        "parent_block_hash": 7,
        "token_ids": [1, 2, 3, 4],
        "block_size": 2,
        "lora_id": null,
        "medium": "GPU",
        "lora_name": null,
        "extra_keys": [null, [["mm", 3]]],
        "group_idx": 0,
        "session_id": "sw-1",
    })
}

#[test]
fn events_are_read_in_their_order_and_unknown_ones_left_out() {
    let events = json!([
        stored(),
        { "type": "BlockRemoved", "block_hashes": [1], "medium": "GPU", "group_idx": 0 },
        { "type": "SomethingNew", "block_hashes": [2] },
        { "type": "AllBlocksCleared" },
    ]);
    let first = StoredBlocks {
        hashes: vec![1, u64::MAX],
        parent: Some(7),
        block_tokens: 2,
        session: Some("sw-1".to_owned()),
        group: Some(0),
    };
    assert_eq!(
        read_batch(&batch(&events)).unwrap(),
        [
            KvEvent::Stored(first),
            KvEvent::Removed { hashes: vec![1], group: Some(0) },
            KvEvent::Cleared,
        ]
    );
}

#[test]
fn the_rank_and_fields_of_the_end_may_be_missing() {
    let bytes = rmp_serde::to_vec(&json!([1.5, [{ "type": "BlockStored", "block_hashes": [3] }]]));
    let only = StoredBlocks { hashes: vec![3], ..StoredBlocks::default() };
    assert_eq!(read_batch(&bytes.unwrap()).unwrap(), [KvEvent::Stored(only)]);
}

#[test]
fn memory_of_the_host_is_no_cache_of_the_gpu() {
    let mut event = stored();
    event["medium"] = "CPU".into();
    assert_eq!(read_batch(&batch(&json!([event]))).unwrap(), []);
}

#[test]
fn long_hashes_are_cut_to_their_last_eight_bytes() {
    // {"type": "BlockRemoved", "block_hashes": [32 bytes]}
    let mut bytes = vec![0x92, 0x01, 0x91, 0x82];
    bytes.extend(rmp_serde::to_vec("type").unwrap());
    bytes.extend(rmp_serde::to_vec("BlockRemoved").unwrap());
    bytes.extend(rmp_serde::to_vec("block_hashes").unwrap());
    bytes.extend([0x91, 0xc4, 32]);
    bytes.extend([0; 31]);
    bytes.push(9);
    let removed = KvEvent::Removed { hashes: vec![9], group: None };
    assert_eq!(read_batch(&bytes).unwrap(), [removed]);
}

#[test]
fn bytes_that_are_no_batch_are_refused() {
    let whole = batch(&json!([stored()]));
    for end in 0..whole.len() - 1 {
        assert!(read_batch(&whole[..end]).is_err(), "cut at {end}");
    }
    for wrong in [json!(1), json!([]), json!([1.0, 2]), json!([1.0, [{ "type": 5 }]])] {
        assert!(read_batch(&rmp_serde::to_vec(&wrong).unwrap()).is_err(), "{wrong}");
    }
    // Lists inside lists, in a field that is skipped.
    let mut deep = vec![0x92, 0x01, 0x91, 0x81, 0xa1, b'x'];
    deep.extend([0x91; 100_000]);
    assert!(read_batch(&deep).is_err());
}

#[test]
fn a_batch_beyond_its_bounds_is_refused() {
    let of =
        |event: serde_json::Value, count: usize| read_batch(&batch(&vec![event; count].into()));
    let removed = |hashes: usize| json!({"type": "BlockRemoved", "block_hashes": vec![1; hashes]});
    assert!(of(removed(HASHES_MAX), 1).is_ok());
    assert!(of(removed(HASHES_MAX + 1), 1).is_err());
    assert!(of(removed(HASHES_MAX / 2 + 1), 2).is_err(), "both together");
    assert!(of(removed(1), EVENTS_MAX).is_ok());
    assert!(of(removed(1), EVENTS_MAX + 1).is_err());
    // Events that are left out are read all the same.
    assert!(of(json!({"type": "x"}), EVENTS_MAX + 1).is_err());
}
