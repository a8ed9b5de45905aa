//! Records on the command line: in a file, on standard input, or in place.

use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};

/// Longest file of records that is read, in bytes: more than a cluster's state has.
const RECORD_BYTES_MAX: u64 = 64 << 20;

/// Reads the record that `given` is or names: JSON in place, `-` for standard input, or a file.
///
/// # Errors
/// Returns an error if the record can't be read or is no JSON.
pub(crate) fn read(given: &str) -> Result<Value> {
    if given.trim_start().starts_with('{') {
        // Errors do not repeat a record that was given in place: it may be long.
        return serde_json::from_str(given).context("the record is no JSON");
    }
    let (text, place) = read_text(given)?;
    serde_json::from_str(&text).with_context(|| format!("{place} is no JSON"))
}

/// Reads a file, or standard input for `-`. Returns its text and what to call it.
///
/// # Errors
/// Returns an error if it can't be read, or is longer than records are.
pub(crate) fn read_text(given: &str) -> Result<(String, &str)> {
    if given == "-" {
        let text = limited(std::io::stdin().lock()).context("standard input can't be read")?;
        return Ok((text, "standard input"));
    }
    let file = std::fs::File::open(Path::new(given)).with_context(|| {
        format!("can't read {given}: give a file, - for standard input, or JSON")
    })?;
    Ok((limited(file).with_context(|| format!("can't read {given}"))?, given))
}

/// Returns a setting's record, `{"value": "30000"}`. Accepts the bare value or a number, too.
///
/// # Errors
/// Returns an error if the text is no value.
pub(crate) fn setting(text: &str) -> Result<Value> {
    let text = text.trim();
    let given = match serde_json::from_str(text) {
        Ok(Value::Object(record)) => {
            let Some(value) = record.get("value") else {
                bail!("a setting is its value, or {{\"value\": \"...\"}}");
            };
            value.clone()
        }
        Ok(value) => value,
        // A record with a fault must not become the value itself.
        Err(_) if text.starts_with('{') => bail!("{text} is no JSON"),
        // A bare word is no JSON.
        Err(_) => Value::from(text),
    };
    match given {
        Value::String(value) => Ok(json!({ "value": value })),
        Value::Number(_) | Value::Bool(_) => Ok(json!({ "value": given.to_string() })),
        _ => bail!("a setting's value is a number, a word, or true or false"),
    }
}

fn limited(source: impl Read) -> Result<String> {
    let mut text = String::new();
    // One byte more than allowed distinguishes a record that is too long from one that just fits.
    source.take(RECORD_BYTES_MAX + 1).read_to_string(&mut text)?;
    if text.len() as u64 > RECORD_BYTES_MAX {
        bail!("it is longer than any record");
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_given_in_a_file_or_in_place() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("acme.json");
        std::fs::write(&file, "{\"tokens_per_min\": 600000}\n").unwrap();
        let record = json!({ "tokens_per_min": 600_000 });
        assert_eq!(read(file.to_str().unwrap()).unwrap(), record);
        assert_eq!(read(" {\"tokens_per_min\": 600000}").unwrap(), record);
        let missing = format!("{:#}", read("acme.jsn").unwrap_err());
        assert!(missing.contains("can't read acme.jsn") && missing.contains("- for standard"));
        std::fs::write(&file, "tokens_per_min = 6").unwrap();
        let wrong = format!("{:#}", read(file.to_str().unwrap()).unwrap_err());
        assert!(wrong.contains("acme.json is no JSON"), "{wrong}");
        assert!(format!("{:#}", read("{").unwrap_err()).contains("the record is no JSON"));
    }

    #[test]
    fn a_setting_may_be_its_bare_value() {
        let of = |text| setting(text).map(|record| record["value"].clone());
        for given in ["30000", "\"30000\"", "{\"value\": \"30000\"}", "{\"value\": 30000}"] {
            assert_eq!(of(given).unwrap(), "30000", "{given}");
        }
        assert_eq!(of("true").unwrap(), "true");
        assert_eq!(of("some-word").unwrap(), "some-word");
        for wrong in ["{", "{}", "[1]", "null"] {
            assert!(of(wrong).is_err(), "{wrong}");
        }
    }
}
