//! Import circles: files or folders of one crate that need each other, directly or through others.
//!
//! No file of a large circle can be read without the rest. Two or three files may form one, as a
//! parent and its child often do; folders may form none. Files are read as text: paths that macros
//! build are not seen, nor are methods, whose file no path names. Code for tests does not count.

mod components;
mod folders;
mod imports;
mod source;
mod tokens;

use std::collections::BTreeMap;

use super::finding::Finding;
use super::tree::Tree;
use components::{Graph, components, shortest_circle};
use folders::{FolderCircle, folder_circles};

/// Most files that may form a circle.
const FILES_MAX: usize = 3;

/// Circles of folders that stay: their members, without `.rs`. A circle with any other member is a
/// finding, and so is one that has come apart.
const KNOWN: &[&[&str]] = &[
    // The link's tasks all hold `Shared`, which holds their handlers and permits.
    &[
        "crates/cluster/link/src/certs",
        "crates/cluster/link/src/forward",
        "crates/cluster/link/src/join",
        "crates/cluster/link/src/peer",
        "crates/cluster/link/src/revoked",
        "crates/cluster/link/src/rpc",
        "crates/cluster/link/src/serve",
        "crates/cluster/link/src/shared",
        "crates/cluster/link/src/tls",
        "crates/cluster/link/src/transport",
    ],
    // A reply whose stream is continued is a request again, and a request ends in a reply.
    &["crates/data-path/proxy/src/relay", "crates/data-path/proxy/src/request"],
    // The error of a connection has those of its versions of HTTP as causes, and they end in it.
    &["crates/data-path/upstream/src/error", "crates/data-path/upstream/src/http1"],
    // An emulated replica stores the responses of its API, which are made by the API's own types.
    &[
        "crates/lab/emulator/src/api",
        "crates/lab/emulator/src/body",
        "crates/lab/emulator/src/replica",
        "crates/lab/emulator/src/replica_port",
    ],
    // A state applies the rules, and the rules change a state. Both read records and commands, which
    // have ids and refusals in common.
    &[
        "crates/pure/cluster-state/src/command",
        "crates/pure/cluster-state/src/entry",
        "crates/pure/cluster-state/src/join_signature",
        "crates/pure/cluster-state/src/outcome",
        "crates/pure/cluster-state/src/records",
        "crates/pure/cluster-state/src/refusal",
        "crates/pure/cluster-state/src/rules",
        "crates/pure/cluster-state/src/state",
    ],
    // Request, prompt, reply and events are parts of one conversation, and each reads some of the
    // others: a continuation is a body made of a reply, an endpoint names the form of its errors.
    &[
        "crates/pure/protocol/src/body",
        "crates/pure/protocol/src/continuation",
        "crates/pure/protocol/src/endpoint",
        "crates/pure/protocol/src/engine_fields",
        "crates/pure/protocol/src/error",
        "crates/pure/protocol/src/grpc",
        "crates/pure/protocol/src/plain_path",
        "crates/pure/protocol/src/prompt",
        "crates/pure/protocol/src/reply",
        "crates/pure/protocol/src/reply_text",
        "crates/pure/protocol/src/splice",
        "crates/pure/protocol/src/sse",
    ],
];

/// Checks every crate.
pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let texts: BTreeMap<&str, &str> =
        tree.files.iter().map(|file| (file.path.as_str(), file.text.as_str())).collect();
    let mut found = Vec::new();
    let mut circles = Vec::new();
    for root in texts.keys().filter(|path| is_root(path)) {
        let graph = imports::graph(root, &texts);
        found.extend(check_files(&graph));
        circles.extend(folder_circles(&graph));
    }
    found.extend(circles.iter().filter(|circle| !is_known(circle)).map(folder_finding));
    let seen = |rooms: &[&str]| texts.keys().any(|file| file.starts_with(rooms[0]));
    let gone =
        KNOWN.iter().filter(|rooms| seen(rooms) && !circles.iter().any(|it| is_all(it, rooms)));
    found.extend(gone.map(|rooms| {
        let message = format!("no circle any more: take {} out of `KNOWN`", rooms.join(", "));
        Finding::violation("folder-circle", rooms[0], message)
    }));
    found
}

/// Returns true for a circle of which all members are in one of the [`KNOWN`].
fn is_known(circle: &FolderCircle) -> bool {
    KNOWN.iter().any(|rooms| circle.rooms.iter().all(|room| rooms.contains(&room.as_str())))
}

/// Returns true for a circle with exactly these members.
fn is_all(circle: &FolderCircle, rooms: &[&str]) -> bool {
    circle.rooms.iter().map(String::as_str).eq(rooms.iter().copied())
}

fn folder_finding(circle: &FolderCircle) -> Finding {
    let rooms: Vec<&str> = circle.rooms.iter().map(String::as_str).collect();
    let imports = circle.imports.values().map(|(from, to)| format!("{from} -> {to}"));
    let message = format!(
        "folders import each other: {}. Imports, one for each pair: {}",
        rooms.join(", "),
        imports.collect::<Vec<_>>().join(", "),
    );
    Finding::violation("folder-circle", rooms.first().unwrap_or(&""), message)
}

fn check_files(graph: &Graph) -> Vec<Finding> {
    let large = components(graph).into_iter().filter(|files| files.len() > FILES_MAX);
    large
        .map(|files| {
            let message = format!(
                "{} files import each other; at most {FILES_MAX} may. Files: {}. A shortest circle: {}",
                files.len(),
                files.iter().copied().collect::<Vec<_>>().join(", "),
                shortest_circle(graph, &files).join(" -> "),
            );
            Finding::violation("import-circle", files.first().unwrap_or(&""), message)
        })
        .collect()
}

/// Returns true if `path` is the file that a crate begins with.
fn is_root(path: &str) -> bool {
    let Some((_, inner)) = path.rsplit_once("src/") else { return false };
    matches!(inner, "lib.rs" | "main.rs")
        || inner
            .strip_prefix("bin/")
            .is_some_and(|name| name.ends_with(".rs") && !name.contains('/'))
}

#[cfg(test)]
mod tests {
    use super::super::tree::testing::tree;
    use super::*;

    /// Returns the messages about a crate of `files`, which are named from its `src` folder.
    fn check_crate(files: &[(&str, &str)]) -> Vec<String> {
        let paths: Vec<String> = files.iter().map(|(path, _)| format!("a/src/{path}")).collect();
        let files: Vec<(&str, &str)> =
            paths.iter().zip(files).map(|(path, (_, text))| (path.as_str(), *text)).collect();
        check(&tree(&files)).into_iter().map(|finding| finding.message).collect()
    }

    /// Returns a crate with four files, of which each imports the next one, and the last `last`.
    fn chain(last: &str) -> Vec<String> {
        check_crate(&[
            ("lib.rs", "mod a; mod b; mod c; mod d;"),
            ("a.rs", "use crate::b::B; pub struct A;"),
            ("b.rs", "use crate::c::C; pub struct B;"),
            ("c.rs", "use crate::d::D; pub struct C;"),
            ("d.rs", last),
        ])
    }

    #[test]
    fn a_circle_of_four_files_is_found_and_named() {
        let message = "4 files import each other; at most 3 may. \
                       Files: a/src/a.rs, a/src/b.rs, a/src/c.rs, a/src/d.rs. \
                       A shortest circle: a/src/a.rs -> a/src/b.rs -> a/src/c.rs -> a/src/d.rs -> a/src/a.rs";
        assert_eq!(chain("use crate::a::A; pub struct D;"), [message]);
    }

    #[test]
    fn three_files_may_form_a_circle() {
        assert_eq!(chain("use crate::b::B; pub struct D;"), [""; 0]);
        assert_eq!(chain("pub struct D;"), [""; 0]);
    }

    #[test]
    fn a_shortest_circle_of_several_is_shown() {
        let found = chain("use crate::{a::A, c::C}; pub struct D;");
        assert_eq!(found.len(), 1);
        assert!(found[0].ends_with("A shortest circle: a/src/c.rs -> a/src/d.rs -> a/src/c.rs"));
    }

    #[test]
    fn an_import_for_tests_closes_no_circle() {
        assert_eq!(chain("#[cfg(test)] use crate::a::A; pub struct D;"), [""; 0]);
        assert_eq!(chain("#[cfg(test)]\nmod tests { use crate::a::A; }"), [""; 0]);
    }

    /// Returns a crate with the folders `a` and `b`, of which `a` imports from `b`. `x` and `y` are the
    /// texts of a file in each.
    fn folders(x: &str, y: &str) -> Vec<String> {
        check_crate(&[
            ("lib.rs", "mod a; mod b;"),
            ("a/mod.rs", "mod x; pub use x::X; pub struct A;"),
            ("a/x.rs", x),
            ("b.rs", "mod y; pub struct B;"),
            ("b/y.rs", y),
        ])
    }

    #[test]
    fn a_circle_of_two_folders_is_found_and_named() {
        let message = "folders import each other: a/src/a, a/src/b. \
                       Imports, one for each pair: a/src/a/x.rs -> a/src/b.rs, a/src/b/y.rs -> a/src/a/mod.rs";
        let x = "use crate::b::B; pub struct X;";
        assert_eq!(folders(x, "use crate::a::A; pub struct Y;"), [message]);
        // An item that another folder passes on is needed from where it is.
        let message = message.replace("a/src/a/mod.rs", "a/src/a/x.rs");
        assert_eq!(folders(x, "use crate::a::X; pub struct Y;"), [message]);
    }

    #[test]
    fn a_folder_may_need_another_and_its_own_parent() {
        assert_eq!(
            folders("use crate::b::B; pub struct X;", "use super::B; pub struct Y;"),
            [""; 0]
        );
        assert_eq!(
            folders("use super::A; pub struct X;", "use crate::a::A; pub struct Y;"),
            [""; 0]
        );
        let test = "#[cfg(test)] use crate::a::A; pub struct Y;";
        assert_eq!(folders("use crate::b::B; pub struct X;", test), [""; 0]);
    }

    #[test]
    fn a_known_circle_may_stay_and_its_end_is_noticed() {
        let known = "crates/data-path/proxy/src";
        let check_proxy = |relay: &str| {
            let files = [
                (format!("{known}/lib.rs"), "mod relay; mod request;"),
                (format!("{known}/relay/mod.rs"), relay),
                (format!("{known}/request/mod.rs"), "mod a; pub struct Request;"),
                (format!("{known}/request/a.rs"), "use crate::relay::Relay;"),
            ];
            let files: Vec<_> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
            check(&tree(&files)).into_iter().map(|finding| finding.message).collect::<Vec<_>>()
        };
        assert_eq!(check_proxy("use crate::request::Request; pub struct Relay;"), [""; 0]);
        let gone =
            format!("no circle any more: take {known}/relay, {known}/request out of `KNOWN`");
        assert_eq!(check_proxy("pub struct Relay;"), [gone]);
    }

    #[test]
    fn a_path_in_code_counts_as_an_import() {
        assert_eq!(chain("pub fn d() { crate::a::A }").len(), 1);
        assert_eq!(chain("use crate::a; pub fn d() { a::A }").len(), 1);
    }
}
