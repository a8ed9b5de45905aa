//! Environment variables that set settings, made from the schema.

use crate::environment::PREFIX;
use crate::schema_node::Node;
use crate::tree::PathStep;

/// Returns the variables that set the settings of the file's sections, such as
/// `SPILLWAY__NODE__REGION`. Of a list they are those of its first element.
#[must_use]
pub fn setting_variables() -> Vec<String> {
    let schema = crate::schema();
    let root = Node::root(schema);
    let of_section = |section: &str| {
        let mut path = vec![PathStep::Key(section.to_owned())];
        let is_list = root.at(&path).is_some_and(Node::is_list);
        let element = if is_list { "0__" } else { "" };
        path.extend(is_list.then_some(PathStep::Index(0)));
        let keys = root.at(&path).map(Node::keys).unwrap_or_default();
        let named = keys.into_iter().map(|key| format!("{PREFIX}{section}__{element}{key}"));
        named.map(|name| name.to_ascii_uppercase()).collect::<Vec<_>>()
    };
    root.keys().into_iter().flat_map(of_section).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_of_sections_and_lists_have_their_variables() {
        let all = setting_variables();
        for name in ["SPILLWAY__NODE__REGION", "SPILLWAY__REPLICA__0__URL"] {
            assert!(all.iter().any(|it| it == name), "{name} {all:?}");
        }
    }
}
