//! Graph of the folders of one crate: each with the folders and files beside it that it needs.

use std::collections::{BTreeMap, BTreeSet};

use super::components::{Graph, components};

/// Folders and files that need each other, and the imports by which they do.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FolderCircle {
    /// Paths without `.rs`. They are in one folder, and at least one is a folder itself.
    pub(super) rooms: BTreeSet<String>,
    /// For each room and one that it imports, a file of the first and one of the second.
    pub(super) imports: BTreeMap<(String, String), (String, String)>,
}

/// Returns the circles among the folders of a crate, of which `files` is the graph.
///
/// A folder and the file of its name are one. A folder and what is in it are no circle: parent and
/// child are judged by their files alone.
pub(super) fn folder_circles(files: &Graph) -> Vec<FolderCircle> {
    let mut rooms = Graph::new();
    let mut examples = BTreeMap::new();
    let imports = files.iter().flat_map(|(from, to)| to.iter().map(move |to| (from, to)));
    for (from, to) in imports {
        let Some((room, needed)) = siblings(room_of(from), room_of(to)) else { continue };
        examples
            .entry((room.to_owned(), needed.to_owned()))
            .or_insert_with(|| (from.clone(), to.clone()));
        rooms.entry(needed.to_owned()).or_default();
        rooms.entry(room.to_owned()).or_default().insert(needed.to_owned());
    }
    let is_folder = |room: &str| files.keys().any(|file| is_in(room_of(file), room));
    let circles =
        components(&rooms).into_iter().filter(|circle| circle.iter().any(|it| is_folder(it)));
    circles
        .map(|circle| FolderCircle {
            rooms: circle.iter().map(|room| (*room).to_owned()).collect(),
            imports: examples
                .iter()
                .filter(|((from, to), _)| {
                    circle.contains(from.as_str()) && circle.contains(to.as_str())
                })
                .map(|(rooms, files)| (rooms.clone(), files.clone()))
                .collect(),
        })
        .collect()
}

/// Returns the path of a file's module: that of its folder for the file that a folder begins with.
fn room_of(file: &str) -> &str {
    let path = file.strip_suffix(".rs").unwrap_or(file);
    match path.rsplit_once('/') {
        Some((folder, "lib" | "main" | "mod")) => folder,
        _ => path,
    }
}

/// Returns the two folders or files in one folder, of which one holds `from` and the other `to`. None
/// if one of the two is in the other.
fn siblings<'a>(from: &'a str, to: &'a str) -> Option<(&'a str, &'a str)> {
    if from == to || is_in(from, to) || is_in(to, from) {
        return None;
    }
    let same = from.bytes().zip(to.bytes()).take_while(|(one, other)| one == other).count();
    let common = from[..same].rfind('/')? + 1;
    let below = |path: &'a str| {
        let end = path[common..].find('/').map_or(path.len(), |at| common + at);
        &path[..end]
    };
    Some((below(from), below(to)))
}

fn is_in(path: &str, folder: &str) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn siblings_are_the_parts_of_two_paths_below_their_common_folder() {
        assert_eq!(siblings("src/a/x", "src/b/c/y"), Some(("src/a", "src/b")));
        assert_eq!(siblings("src/ab", "src/ac/y"), Some(("src/ab", "src/ac")));
        assert_eq!(siblings("src/a/x", "src/a/y"), Some(("src/a/x", "src/a/y")));
        assert_eq!(siblings("src/a/x", "src/a"), None);
        assert_eq!(siblings("src", "src/a"), None);
    }

    #[test]
    fn a_folder_and_the_file_that_it_begins_with_are_one() {
        for file in ["src/a.rs", "src/a/mod.rs"] {
            assert_eq!(room_of(file), "src/a");
        }
        assert_eq!(room_of("src/lib.rs"), "src");
        assert_eq!(room_of("src/a/b.rs"), "src/a/b");
    }
}
