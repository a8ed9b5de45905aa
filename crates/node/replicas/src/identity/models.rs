//! Parser of a page of models, with limits: a replica may send anything.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::{Map, Value};
use spillway_types::{ModelName, ModelsPage, ServedModel};

/// Largest page that is read, in bytes: parsed, it takes several times as much memory.
const PAGE_BYTES_MAX: usize = 1 << 20;
/// Most models of a page that are read. A server with many adapters has some hundreds.
const MODELS_MAX: usize = 1_024;
/// Longest id, root or owner, in bytes.
const NAME_BYTES_MAX: usize = 256;
/// Most further fields of a model.
const FIELDS_MAX: usize = 32;
/// Longest name of a further field, in bytes.
const FIELD_NAME_BYTES_MAX: usize = 64;
/// Most bytes of all further fields of a model, names included.
const FIELDS_BYTES_MAX: usize = 4 << 10;
/// Most levels of arrays and objects within a further field.
const DEPTH_MAX: usize = 8;

#[derive(Deserialize)]
struct Page {
    object: Option<Value>,
    /// Null where Ollama has no model.
    data: Option<Vec<Map<String, Value>>>,
}

/// Reads a page; `None` if it is not a list of models. An entry beyond a limit is left out alone.
pub(crate) fn read_page(bytes: &[u8]) -> Option<ModelsPage> {
    if bytes.len() > PAGE_BYTES_MAX {
        return None;
    }
    let page: Page = serde_json::from_slice(bytes).ok()?;
    let is_list = page.object.is_some_and(|object| object == "list");
    let data = match page.data {
        None if is_list => Vec::new(),
        data => data?,
    };
    let count = data.len();
    // An empty list is a list of models; objects without ids are something else.
    if count > 0 && !data.iter().any(|model| model.contains_key("id")) {
        return None;
    }
    let models: Vec<_> = data.into_iter().take(MODELS_MAX).filter_map(model).collect();
    let is_whole = models.len() == count;
    let page = ModelsPage::new(models);
    Some(if is_whole { page } else { page.cut() })
}

fn model(mut object: Map<String, Value>) -> Option<(ModelName, ServedModel)> {
    // Lists of other objects have ids too.
    if object.get("object").is_some_and(|kind| kind != "model") {
        return None;
    }
    let id = name(object.remove("id")).filter(|id| !id.is_empty())?;
    // `object` is always the same, and `created` may differ with each start.
    for own in ["object", "created"] {
        object.remove(own);
    }
    let owned_by = name(object.remove("owned_by"));
    let root = name(object.remove("root"));
    let mut fields = BTreeMap::new();
    let mut bytes = 0;
    for (name, mut value) in object {
        if name == "permission" {
            forget_moments(&mut value);
        }
        if name.len() > FIELD_NAME_BYTES_MAX || depth(&value) > DEPTH_MAX {
            continue;
        }
        let text = value.to_string();
        let with_it = bytes + name.len() + text.len();
        if with_it <= FIELDS_BYTES_MAX && fields.len() < FIELDS_MAX {
            bytes = with_it;
            fields.insert(name, text);
        }
    }
    Some((ModelName::from(id), ServedModel { owned_by, root, fields }))
}

/// Removes values from permissions that a server chooses at random at each start: otherwise
/// replicas that serve the same model would never agree.
fn forget_moments(permissions: &mut Value) {
    for permission in permissions.as_array_mut().into_iter().flatten() {
        if let Some(permission) = permission.as_object_mut() {
            permission.remove("id");
            permission.remove("created");
        }
    }
}

fn name(value: Option<Value>) -> Option<String> {
    match value {
        Some(Value::String(text)) if text.len() <= NAME_BYTES_MAX => Some(text),
        _ => None,
    }
}

/// Returns the levels of arrays and objects. The recursion ends because the parser limits them.
fn depth(value: &Value) -> usize {
    let deepest =
        |values: &mut dyn Iterator<Item = &Value>| 1 + values.map(depth).max().unwrap_or(0);
    match value {
        Value::Array(values) => deepest(&mut values.iter()),
        Value::Object(values) => deepest(&mut values.values()),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(page: &Value) -> Option<ModelsPage> {
        read_page(page.to_string().as_bytes())
    }

    fn of(page: &Value, id: &str) -> ServedModel {
        read(page).and_then(|page| page.get(&id.into()).cloned()).expect("the model")
    }

    #[test]
    fn pages_of_vllm_and_llama_cpp_are_read() {
        let permission = json!([{"id": "modelperm-1", "object": "model_permission", "created": 7,
            "allow_view": true, "group": null}]);
        let vllm = json!({"object": "list", "data": [{"id": "tiny", "object": "model", "created": 7,
            "owned_by": "vllm", "root": "/models/tiny", "parent": null, "max_model_len": 2048,
            "permission": permission}]});
        let model = of(&vllm, "tiny");
        assert_eq!(model.owned_by.as_deref(), Some("vllm"));
        assert_eq!(model.root.as_deref(), Some("/models/tiny"));
        let field = |name: &str| model.fields.get(name).map(String::as_str);
        assert_eq!(field("max_model_len"), Some("2048"));
        assert_eq!(field("parent"), Some("null"));
        let permission = field("permission").expect("permissions");
        assert!(permission.contains("allow_view") && !permission.contains("modelperm"));
        let llama = json!({"models": [{"name": "x"}], "object": "list", "data": [{"id": "x.gguf",
            "object": "model", "owned_by": "llamacpp", "meta": {"n_ctx_train": 2048, "size": 1}}]});
        let model = of(&llama, "x.gguf");
        let meta = model.fields.get("meta").map(String::as_str);
        assert_eq!((model.root, meta), (None, Some(r#"{"n_ctx_train":2048,"size":1}"#)));
    }

    #[test]
    fn what_is_no_list_of_models_is_no_page() {
        for page in [
            json!({}),
            json!([]),
            json!({"data": "x"}),
            json!({"data": [{"embedding": [1.0]}]}),
            json!({"error": {"message": "no"}}),
        ] {
            assert_eq!(read(&page), None, "{page}");
        }
        for empty in [json!([]), json!(null)] {
            let empty = json!({"object": "list", "data": empty});
            assert_eq!(read(&empty), Some(ModelsPage::default()));
        }
        let files = json!({"object": "list", "data": [{"id": "file-1", "object": "file"}]});
        assert_eq!(read(&files).map(|page| page.is_empty()), Some(true));
    }

    #[test]
    fn what_is_beyond_bounds_is_left_out_by_itself() {
        let mut deep = json!(1);
        for _ in 0..20 {
            deep = json!([deep]);
        }
        let long = "x".repeat(5_000);
        let many: Vec<Value> = (0..2_000).map(|id| json!({"id": format!("{id:04}")})).collect();
        let page = json!({"data": many});
        assert_eq!(read(&page).map(|page| page.ids().len()), Some(1_024));
        assert_eq!(read(&page).map(|page| page.denies(&"other".into())), Some(false));
        let page = json!({"data": [
            {"id": long}, {"id": ""}, {"id": 7}, {},
            {"id": "m", "root": long, "meta": long, "deep": deep, "max_model_len": 5, long: 1},
        ]});
        let model = of(&page, "m");
        assert_eq!(model.root, None);
        assert_eq!(model.fields, [("max_model_len".to_owned(), "5".to_owned())].into());
        assert_eq!(read(&page).map(|page| page.ids().len()), Some(1));
        let fields: Map<String, Value> = (0..40).map(|n| (format!("f{n}"), json!(n))).collect();
        let mut object = json!({"id": "m"});
        object.as_object_mut().expect("an object").extend(fields);
        assert_eq!(of(&json!({"data": [object]}), "m").fields.len(), FIELDS_MAX);
    }
}
