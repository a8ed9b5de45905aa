//! Circles of a graph.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Files by path, each with the files that it imports.
pub(super) type Graph = BTreeMap<String, BTreeSet<String>>;

/// Returns the sets of files that reach each other; files that form no set are left out.
pub(super) fn components(graph: &Graph) -> Vec<BTreeSet<&str>> {
    let reached: BTreeMap<&str, BTreeSet<&str>> =
        graph.keys().map(|file| (file.as_str(), reached_from(graph, file))).collect();
    let mut found = BTreeSet::new();
    for (&file, others) in &reached {
        let circle: BTreeSet<&str> =
            others.iter().filter(|other| reached[*other].contains(file)).copied().collect();
        // A file that reaches itself has a circle; no file imports itself.
        if !circle.is_empty() {
            found.insert(circle);
        }
    }
    found.into_iter().collect()
}

/// Returns the files of one shortest circle among `files`, which begins and ends with one file.
pub(super) fn shortest_circle<'a>(graph: &'a Graph, files: &BTreeSet<&'a str>) -> Vec<&'a str> {
    let circles = files.iter().filter_map(|file| shortest_way_back(graph, file));
    circles.min_by_key(Vec::len).unwrap_or_default()
}

fn reached_from<'a>(graph: &'a Graph, start: &str) -> BTreeSet<&'a str> {
    let mut reached = BTreeSet::new();
    let mut open: Vec<&str> = imported(graph, start).collect();
    while let Some(file) = open.pop() {
        if reached.insert(file) {
            open.extend(imported(graph, file));
        }
    }
    reached
}

fn shortest_way_back<'a>(graph: &'a Graph, start: &'a str) -> Option<Vec<&'a str>> {
    let mut seen = BTreeSet::new();
    let mut open = VecDeque::from([vec![start]]);
    while let Some(way) = open.pop_front() {
        for next in imported(graph, way[way.len() - 1]) {
            let longer = [way.as_slice(), &[next]].concat();
            if next == start {
                return Some(longer);
            }
            if seen.insert(next) {
                open.push_back(longer);
            }
        }
    }
    None
}

fn imported<'a>(graph: &'a Graph, file: &str) -> impl Iterator<Item = &'a str> {
    graph.get(file).into_iter().flatten().map(String::as_str)
}
