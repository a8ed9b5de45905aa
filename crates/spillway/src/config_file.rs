//! Config file of `run` and `config check`, and the settings of the environment.

use std::path::{Path, PathBuf};

use spillway_config::{ConfigError, ConfigErrors};

/// Files that are used where none is named, the first that exists.
const USUAL: [&str; 2] = ["spillway.toml", "/etc/spillway/spillway.toml"];

/// Returns the file that is named, or the first usual one that `exists`.
///
/// # Errors
/// Returns an error if no file is named, and no usual one exists.
pub(crate) fn chosen(
    named: Option<&Path>,
    exists: impl Fn(&Path) -> bool,
) -> Result<PathBuf, ConfigErrors> {
    if let Some(named) = named {
        return Ok(named.to_owned());
    }
    let found = USUAL.iter().map(Path::new).find(|file| exists(file));
    found.map(Path::to_owned).ok_or_else(|| {
        let message = format!("no config file is named, and neither it nor {} exists", USUAL[1]);
        let remedy = "name one: `spillway run --config FILE`, `spillway config check FILE`, or the \
                      variable SPILLWAY_CONFIG";
        ConfigError::whole_file(Path::new(USUAL[0]), message, remedy).into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_file_counts_and_else_the_first_that_exists() {
        let chosen = |named: Option<&str>, existing: &[&str]| {
            let exists = |file: &Path| existing.iter().any(|it| Path::new(it) == file);
            chosen(named.map(Path::new), exists).map(|file| file.display().to_string())
        };
        assert_eq!(chosen(Some("a.toml"), &USUAL).unwrap(), "a.toml");
        assert_eq!(chosen(None, &USUAL).unwrap(), "spillway.toml");
        assert_eq!(chosen(None, &USUAL[1..]).unwrap(), "/etc/spillway/spillway.toml");
        let none = chosen(None, &[]).unwrap_err().to_string();
        assert!(none.contains("spillway.toml") && none.contains("--config FILE"), "{none}");
    }
}
