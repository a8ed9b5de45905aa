//! Finds the name that was most likely meant.

/// Bytes from which on two slips in one name are likely.
const LONG_BYTES: usize = 8;

/// Returns the known name that is nearest to a given one; `None` if none is near.
#[must_use]
pub fn nearest<'a>(given: &str, known: &[&'a str]) -> Option<&'a str> {
    let plain = plain(given);
    // A unit or a plural that was left out is likelier than any other slip.
    let same = known.iter().find(|name| self::plain(name) == plain);
    let with_unit = || {
        let begins = |name: &&&str| {
            name.strip_prefix(&given.replace('-', "_")).is_some_and(|rest| rest.starts_with('_'))
        };
        let mut longer = known.iter().filter(begins);
        longer.next().filter(|_| longer.next().is_none())
    };
    let near = || {
        let rated =
            known.iter().map(|name| (strsim::osa_distance(&plain, &self::plain(name)), name));
        let is_near = |distance: usize, name: &str| {
            distance <= (plain.len().max(name.len()) / 3).max(1) && distance < plain.len()
        };
        let (distance, name) = rated.min_by_key(|(distance, _)| *distance)?;
        is_near(distance, name).then_some(name)
    };
    same.or_else(with_unit).or_else(near).copied()
}

/// Returns the known name that a given one is most likely a slip of; `None` if it may well be a name
/// of its own. Names that differ in their numbers or single letters alone are siblings, such as
/// `eu-1` and `eu-2`, or `team-a` and `team-b`.
#[must_use]
pub fn misspelt<'a>(given: &str, known: &[&'a str]) -> Option<&'a str> {
    let (plain, given_words) = (plain(given), words(given));
    let edits_max = if plain.len() < LONG_BYTES { 1 } else { 2 };
    let rated = known.iter().filter_map(|name| {
        let other = self::plain(name);
        let is_sibling = words(name) == given_words && other != plain;
        let edits = strsim::osa_distance(&plain, &other);
        (!is_sibling && edits <= edits_max && edits < plain.len()).then_some((edits, *name))
    });
    rated.min_by_key(|(edits, _)| *edits).map(|(_, name)| name)
}

/// Returns the parts of a name that are no numbers and no single letters.
fn words(name: &str) -> Vec<String> {
    let parts = name.split(|letter: char| !letter.is_ascii_alphabetic());
    parts.filter(|part| part.len() > 1).map(str::to_ascii_lowercase).collect()
}

/// Removes what people spell in several ways: case, hyphens, and the plural.
#[must_use]
pub fn plain(name: &str) -> String {
    let name = name.to_ascii_lowercase().replace(['-', ' '], "_");
    name.strip_suffix('s').map_or_else(|| name.clone(), ToOwned::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_that_was_meant_is_found() {
        let keys = ["name", "url", "models", "weight", "idle_ms", "node", "replica", "pool"];
        for (given, meant) in [
            ("model", Some("models")),
            ("nam", Some("name")),
            ("nodes", Some("node")),
            ("weigth", Some("weight")),
            ("URL", Some("url")),
            ("idle", Some("idle_ms")),
            ("idle-ms", Some("idle_ms")),
            ("x", None),
            ("backend", None),
        ] {
            assert_eq!(nearest(given, &keys), meant, "{given}");
        }
    }

    #[test]
    fn names_that_differ_in_numbers_are_no_slips() {
        let known = ["eu-west-1", "acme", "t1", "team-a", "eu", "llama-3.1-8b", "llama"];
        for (given, meant) in [
            ("eu-wset-1", Some("eu-west-1")),
            ("eu-west-2", None),
            ("euu", Some("eu")),
            ("acmee", Some("acme")),
            ("Acme", Some("acme")),
            ("acme-prod", None),
            ("t12", None),
            ("team-b", None),
            ("taem-a", Some("team-a")),
            ("llama-3.1-70b", None),
            ("lama-3.1-8b", Some("llama-3.1-8b")),
            ("initech", None),
            ("x", None),
        ] {
            assert_eq!(misspelt(given, &known), meant, "{given}");
        }
    }
}
