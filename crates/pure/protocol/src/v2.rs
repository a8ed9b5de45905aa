//! Facts of a KServe V2 request apart from its tensors: requested tokens and answers, and fields
//! that steer the engine.

mod look;
mod watch;

use crate::body::{CheckedBody, NameTable, Number, number};
use crate::{BodyError, EngineFields};
pub use look::{Expanded, V2Coding, V2Look};
pub use watch::V2Watch;

/// Objects in a request whose members engines read as parameters.
const NESTED: [&str; 3] = ["parameters", "sampling_parameters", "sampling_params"];
/// Members that limit the length of an answer.
const OUTPUT: [&str; 9] = [
    "max_tokens",
    "max_new_tokens",
    "max_completion_tokens",
    "max_output_tokens",
    "max_output_len",
    "max_length",
    "request_output_len",
    "num_predict",
    "min_tokens",
];
/// Members for the number of answers.
const ANSWERS: [&str; 5] = ["n", "best_of", "beam_width", "num_beams", "num_return_sequences"];

const KNOWN: usize = NESTED.len() + OUTPUT.len() + ANSWERS.len();
const ALL: usize = KNOWN + crate::engine_fields::NAMES.len();
static FIELDS: NameTable<ALL> = NameTable::new({
    let mut names = [""; ALL];
    let mut at = 0;
    while at < ALL {
        names[at] = if at < NESTED.len() {
            NESTED[at]
        } else if at < NESTED.len() + OUTPUT.len() {
            OUTPUT[at - NESTED.len()]
        } else if at < KNOWN {
            ANSWERS[at - NESTED.len() - OUTPUT.len()]
        } else {
            crate::engine_fields::NAMES[at - KNOWN]
        };
        at += 1;
    }
    names
});

/// Facts of a V2 request, apart from its tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct V2Facts {
    /// Largest number of tokens of one answer; `None` if no member has it.
    pub max_tokens: Option<u32>,
    /// True if a limit or count cannot be read as a whole number, so that nothing bounds the
    /// answers.
    pub is_unbounded: bool,
    /// Number of answers to the prompt, at least 1.
    pub answers: u32,
    /// Fields that steer the engine.
    pub engine_fields: EngineFields,
}

impl Default for V2Facts {
    fn default() -> Self {
        let engine_fields = EngineFields::NONE;
        Self { max_tokens: None, is_unbounded: false, answers: 1, engine_fields }
    }
}

/// Reads the JSON of a V2 request: its own members, those of `parameters`, and those of other
/// objects that engines take parameters from. A body that is no valid JSON may still be read by an
/// engine, e.g. one with `NaN`. In such a body, every field counts whose name occurs in it.
///
/// # Errors
/// Returns an error if a member occurs twice or in another case, so that engines would read it
/// differently.
pub fn read_v2(body: &[u8]) -> Result<V2Facts, BodyError> {
    let mut facts = V2Facts::default();
    let Ok(source) = CheckedBody::new(body) else {
        return Ok(V2Facts { engine_fields: EngineFields::seen_in(body), ..facts });
    };
    let Ok(object) = source.object() else {
        return Ok(V2Facts { engine_fields: EngineFields::seen_in(body), ..facts });
    };
    match read_object(&source, object, &mut facts, true) {
        // No JSON by this reader's rules, but an engine may be more lenient.
        Err(error) if error.param().is_none() => {
            facts.engine_fields = EngineFields::seen_in(body);
            facts.is_unbounded = true;
            Ok(facts)
        }
        Err(error) => Err(error),
        Ok(()) => Ok(facts),
    }
}

fn read_object<'b>(
    source: &CheckedBody<'b>,
    object: &'b str,
    facts: &mut V2Facts,
    is_outer: bool,
) -> Result<(), BodyError> {
    let members = source.members(object, &FIELDS)?;
    let value = |at: usize| members.value(at).filter(|raw| *raw != "null");
    for at in NESTED.len()..NESTED.len() + OUTPUT.len() {
        match value(at).map_or(Number::None, number) {
            Number::None | Number::Some(0) => {}
            Number::Some(tokens) => facts.max_tokens = facts.max_tokens.max(Some(tokens)),
            Number::Converted(_) | Number::Negative | Number::Other => facts.is_unbounded = true,
        }
    }
    for at in NESTED.len() + OUTPUT.len()..KNOWN {
        match value(at).map_or(Number::None, number) {
            Number::None => {}
            Number::Some(answers) => facts.answers = facts.answers.max(answers),
            Number::Converted(_) | Number::Negative | Number::Other => facts.is_unbounded = true,
        }
    }
    for at in KNOWN..ALL {
        if value(at).is_some() {
            facts.engine_fields = facts.engine_fields.with(EngineFields::at(at - KNOWN));
        }
    }
    for raw in (0..NESTED.len()).filter_map(value) {
        read_nested(source, raw, facts, is_outer)?;
    }
    Ok(())
}

fn read_nested<'b>(
    source: &CheckedBody<'b>,
    json: &'b str,
    facts: &mut V2Facts,
    is_outer: bool,
) -> Result<(), BodyError> {
    if json.starts_with('{') && is_outer {
        return read_object(source, json, facts, false);
    }
    // Some engines take their parameters as JSON within a string.
    if json.starts_with('"') {
        let text: String = serde_json::from_str(json).unwrap_or_default();
        let within = read_v2_text(text.as_bytes());
        facts.max_tokens = facts.max_tokens.max(within.max_tokens);
        facts.answers = facts.answers.max(within.answers);
        facts.is_unbounded |= within.is_unbounded;
        facts.engine_fields = facts.engine_fields.with(within.engine_fields);
    }
    Ok(())
}

/// Reads JSON within a string. Nothing in it is refused.
fn read_v2_text(text: &[u8]) -> V2Facts {
    let mut facts = V2Facts::default();
    let read = CheckedBody::new(text).and_then(|source| {
        let object = source.object()?;
        read_object(&source, object, &mut facts, false)
    });
    if read.is_err() {
        facts.engine_fields = EngineFields::seen_in(text);
        facts.is_unbounded = true;
    }
    facts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: &str) -> V2Facts {
        read_v2(body.as_bytes()).unwrap()
    }

    fn named(name: &str) -> EngineFields {
        EngineFields::named(name).unwrap()
    }

    #[test]
    fn parameters_count_wherever_engines_read_them() {
        for body in [
            r#"{"text_input":"x","max_tokens":900,"priority":1}"#,
            r#"{"text_input":"x","parameters":{"max_tokens":900,"priority":1}}"#,
            r#"{"parameters":{"sampling_parameters":"{\"max_tokens\":900,\"priority\":1}"}}"#,
            r#"{"sampling_params":{"max_new_tokens":900},"max_tokens":1,"priority":0}"#,
        ] {
            let facts = read(body);
            assert_eq!(facts.max_tokens, Some(900), "{body}");
            assert_eq!(facts.engine_fields, named("priority"), "{body}");
        }
        assert_eq!(read(r#"{"inputs":[{"name":"a","data":[1]}]}"#), V2Facts::default());
        assert_eq!(read(r#"{"parameters":{"n":4}}"#).answers, 4);
        assert!(read(r#"{"max_tokens":"900"}"#).is_unbounded);
        assert_eq!(read(r#"{"inputs":[{"parameters":{"priority":1}}]}"#), V2Facts::default());
    }

    #[test]
    fn a_parameter_that_is_there_twice_is_refused() {
        for body in [
            r#"{"parameters":{"max_tokens":1,"max_tokens":900}}"#,
            r#"{"parameters":{},"parameters":{"priority":1}}"#,
            r#"{"parameters":{"Priority":1}}"#,
        ] {
            assert!(read_v2(body.as_bytes()).is_err(), "{body}");
        }
    }

    #[test]
    fn what_only_a_lenient_reader_takes_is_looked_through_for_names() {
        let facts = read(r#"{"inputs":[{"data":[NaN]}],"parameters":{"priority":1}}"#);
        assert_eq!(facts.engine_fields, named("priority"));
        let facts = read_v2(b"\xff{\"PRIORITY\":1}").unwrap();
        assert_eq!(facts.engine_fields, named("priority"));
        let facts = read(r#"/**/{"parameters":{"priority":1}}"#);
        assert_eq!(facts.engine_fields, named("priority"));
        let escaped = r#"{"inputs":[{"data":[NaN]}],"parameters":{"prior\u0069ty":1}}"#;
        assert_ne!(read(escaped).engine_fields, EngineFields::NONE);
        assert_eq!(read(r#"{"inputs":[{"data":[NaN]}]}"#).engine_fields, EngineFields::NONE);
    }
}
