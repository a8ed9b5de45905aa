//! Repository index of KServe V2: the models that Triton and MLServer have loaded.

use serde_json::Value;
use spillway_types::{ModelName, ModelsPage, ServedModel};

/// Largest index that is read, in bytes.
const INDEX_BYTES_MAX: usize = 1 << 20;
/// Most models of an index that are read.
const MODELS_MAX: usize = 1_024;
/// Longest name of a model, in bytes.
const NAME_BYTES_MAX: usize = 256;

/// Reads an index; `None` if the text is not one. Models that are not ready are left out.
pub(crate) fn read_index(bytes: &[u8]) -> Option<ModelsPage> {
    if bytes.len() > INDEX_BYTES_MAX {
        return None;
    }
    let Value::Array(entries) = serde_json::from_slice(bytes).ok()? else { return None };
    let is_cut = entries.len() > MODELS_MAX;
    let ready = entries.iter().take(MODELS_MAX).filter(|entry| {
        // Servers that report no state list only loaded models.
        entry["state"].as_str().is_none_or(|state| state.is_empty() || state == "READY")
    });
    let names = ready.filter_map(|entry| entry["name"].as_str());
    let names = names.filter(|name| !name.is_empty() && name.len() <= NAME_BYTES_MAX);
    let page = ModelsPage::new(names.map(|name| (ModelName::from(name), ServedModel::default())));
    Some(if is_cut { page.cut() } else { page })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_that_are_ready_are_listed() {
        let index = br#"[{"name": "iris", "version": "v1", "state": "READY", "reason": ""},
            {"name": "old", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"},
            {"name": "plain"}, {"name": ""}, {}, 7]"#;
        let page = read_index(index).expect("an index");
        let ids: Vec<&str> = page.ids().map(ModelName::as_str).collect();
        assert_eq!(ids, ["iris", "plain"]);
        assert_eq!(read_index(b"[]"), Some(ModelsPage::default()));
        for other in [&b"{}"[..], b"\"READY\"", b"not JSON", b""] {
            assert_eq!(read_index(other), None);
        }
    }
}
