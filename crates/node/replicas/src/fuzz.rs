//! Fuzz targets for answers of replicas, metrics pages and name servers.

use std::time::Duration;

use hickory_resolver::proto::op::Message;
use serde_json::json;
use spillway_types::KvEvent;
use tokio::time::Instant;

use crate::discovery::fuzz::endpoints;
use crate::health_check::status_in;
use crate::identity::{EnginePage, read_index, read_page};
use crate::kv_events::{read_batch, read_messages};
use crate::{Expectation, Mapping, ServerKind};

/// Fuzz target: the name of the folder of its inputs, and the function that runs one input.
pub type Target = (&'static str, fn(&[u8]));

/// Fuzz targets of this crate.
pub const TARGETS: &[Target] = &[
    ("metrics_page", metrics_page),
    ("models_page", models_page),
    ("check_answer", check_answer),
    ("dns_answer", dns_answer),
    ("kv_events", kv_events),
    ("kv_frames", kv_frames),
];

/// Length of the shortest question or record in a DNS message.
const RECORD_BYTES_MIN: usize = 5;

/// Checks that loads from a page are finite and not negative, and that shares are 0 to 1.
fn metrics_page(input: &[u8]) {
    for kind in [ServerKind::Vllm, ServerKind::Sglang, ServerKind::Triton] {
        let Some(mapping) = Mapping::of(kind) else { continue };
        let (load, _cache) = mapping.read(input);
        for count in [load.queued, load.running, load.pending].into_iter().flatten() {
            assert!(count.is_finite() && count >= 0.0, "{load:?}");
        }
        for share in [load.kv_use, load.gpu_use, load.gpu_memory_use].into_iter().flatten() {
            assert!((0.0..=1.0).contains(&share), "{load:?}");
        }
    }
}

/// Checks that the content kept from a page of models is bounded, that its fields are JSON on one
/// line, and that no page stops the recognition of the software.
fn models_page(input: &[u8]) {
    for page in EnginePage::ALL {
        for status in [200, 400] {
            page.kind(status, input);
        }
    }
    if let Some(index) = read_index(input) {
        assert!(index.ids().len() <= 1_024);
        assert!(index.ids().all(|id| id.as_str().len() <= 256));
    }
    let Some(page) = read_page(input) else { return };
    assert!(page.ids().len() <= 1_024);
    for id in page.ids() {
        let found = page.get(id);
        assert!(found.is_some(), "{id} without a model");
        let Some(model) = found else { continue };
        let bytes = model.fields.iter().map(|(name, text)| name.len() + text.len()).sum::<usize>();
        assert!(id.as_str().len() <= 256 && bytes <= 4 << 10, "{id}: {bytes}");
        for text in model.fields.values() {
            assert!(serde_json::from_str::<serde_json::Value>(text).is_ok(), "{text}");
            assert!(!text.contains(['\n', '\r']), "{text}");
        }
    }
}

/// Checks that any answer can be compared with an expectation.
fn check_answer(input: &[u8]) {
    let _status = status_in(input);
    let pointer = "/status/0".to_owned();
    let _met = Expectation::Json { pointer, value: Some(json!({"ok": [1.5, true]})) }.is_met(input);
    let is_equal = Expectation::Equals("ok".to_owned()).is_met(input);
    assert!(!is_equal || Expectation::Contains("ok".to_owned()).is_met(input));
}

/// Checks that the blocks kept from a message of KV events are fewer than its bytes.
fn kv_events(input: &[u8]) {
    let Ok(events) = read_batch(input) else { return };
    let hashes_of = |event: &KvEvent| match event {
        KvEvent::Stored(stored) => stored.hashes.len(),
        KvEvent::Removed { hashes, .. } => hashes.len(),
        KvEvent::Cleared => 0,
    };
    let hashes: usize = events.iter().map(hashes_of).sum();
    assert!(hashes + events.len() < input.len(), "{hashes} hashes");
}

/// Checks that frames give the same messages however their bytes are cut.
fn kv_frames(input: &[u8]) {
    let whole = read_messages(input, input.len());
    assert_eq!(read_messages(input, 1), whole);
    assert!(whole.iter().flatten().map(|frame| frame.len() + 2).sum::<usize>() <= input.len());
}

/// Checks that any DNS message gives a bounded set of endpoints, each with a name and a weight.
fn dns_answer(input: &[u8]) {
    // Hickory allocates memory by the counts in the header; that is not under test here.
    let counts = input.get(4..12).unwrap_or_default().chunks_exact(2);
    let claimed: usize =
        counts.map(|count| usize::from(u16::from_be_bytes([count[0], count[1]]))).sum();
    if claimed > input.len() / RECORD_BYTES_MIN {
        return;
    }
    let Ok(message) = Message::from_vec(input) else { return };
    let now = Instant::now();
    for found in endpoints(&message.answers, &message.additionals, now, Duration::ZERO) {
        assert!(found.len() <= 1_024, "{} endpoints", found.len());
        assert!(found.iter().all(|endpoint| endpoint.weight >= 1 && !endpoint.host.is_empty()));
        assert!(found.is_sorted(), "in no order");
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn targets_hold_on_kept_inputs_and_on_mutations_of_them() {
        spillway_fuzz::check(super::TARGETS);
    }
}
