//! Settings that do nothing beside the others of their table. They are errors: who writes one expects
//! that it counts.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::ConfigErrors;
use crate::source::Source;

/// Settings that do nothing without another one.
struct Rule {
    /// Table or list of tables; with a dot, a table in those.
    table: &'static str,
    keys: &'static [&'static str],
    needs: Needs,
}

/// Condition under which settings have an effect.
enum Needs {
    /// This setting of the same table.
    Key(&'static str),
    /// This value of a setting of the same table.
    Value(&'static str, &'static str),
    /// Absence of this setting of the same table, which takes precedence.
    Without(&'static str),
    /// A route whose requests are read for their prompts.
    Bodies,
}

const RULES: &[Rule] = &[
    rule("route", &["replace_prefix", "protocol", "model"], Needs::Key("path_prefix")),
    rule("route", &["inject_usage", "continue_streams"], Needs::Bodies),
    rule("replica", &["class"], Needs::Without("weight")),
    rule("discovery.replica", &["class"], Needs::Without("weight")),
    rule("access_log", &["share_percent"], Needs::Value("requests", "all")),
    rule("geo", &["unknown_clients"], Needs::Key("database")),
    rule("cluster", &["join_token_file"], Needs::Key("data")),
    rule("traces", &["share_percent", "headers_file", "ca"], Needs::Key("endpoint")),
];

const fn rule(table: &'static str, keys: &'static [&'static str], needs: Needs) -> Rule {
    Rule { table, keys, needs }
}

/// Checks that each setting of the file does something.
///
/// # Errors
/// Returns an error for each that does nothing.
pub(crate) fn check(source: &Source) -> Result<(), ConfigErrors> {
    let mut errors = ConfigErrors::default();
    // A text that is no TOML has errors already.
    let Ok(file) = DeTable::parse(source.text()) else { return Ok(()) };
    let file = file.get_ref();
    for rule in RULES {
        for section in sections(file, rule.table) {
            if rule.needs.is_in(section) || rule.is_from_outside(source) {
                continue;
            }
            // A setting that is switched off is meant to have no effect.
            let set = section.iter().filter(|(key, value)| {
                rule.keys.iter().any(|it| &**key.get_ref() == *it) && !is_off(value)
            });
            for (key, _) in set {
                let message = format!("{} does nothing {}", key.get_ref(), rule.needs.missing());
                let remedy = format!("{}, or remove {}", rule.needs.remedy(), key.get_ref());
                errors.add(source.fault(key.span(), message, remedy));
            }
        }
    }
    errors.or(())
}

fn is_off(value: &Spanned<DeValue<'_>>) -> bool {
    value.get_ref().as_bool() == Some(false)
}

/// Returns the tables of that name: one, or all of a list; with a dot in the name, those in each of
/// them.
fn sections<'t, 'i>(file: &'t DeTable<'i>, name: &str) -> Vec<&'t DeTable<'i>> {
    if let Some((outer, inner)) = name.split_once('.') {
        let outer = sections(file, outer).into_iter();
        return outer.flat_map(|section| sections(section, inner)).collect();
    }
    fn of<'t, 'i>(value: &'t Spanned<DeValue<'i>>) -> Option<&'t DeTable<'i>> {
        match value.get_ref() {
            DeValue::Table(table) => Some(table),
            _ => None,
        }
    }
    match file.get(name).map(Spanned::get_ref) {
        Some(DeValue::Array(list)) => list.iter().filter_map(of).collect(),
        Some(DeValue::Table(table)) => vec![table],
        _ => Vec::new(),
    }
}

impl Rule {
    /// Returns true if an environment variable may set the missing setting.
    fn is_from_outside(&self, source: &Source) -> bool {
        let own = self.table.split('.').next();
        own.is_some_and(|table| {
            let begin = format!("SPILLWAY__{}__", table.to_ascii_uppercase());
            let names = source.variables().iter().map(|it| it.name.to_ascii_uppercase());
            names.into_iter().any(|name| name.starts_with(&begin))
        })
    }
}

impl Needs {
    fn is_in(&self, section: &DeTable<'_>) -> bool {
        let is = |key: &str, value: &str| {
            section.get(key).and_then(|it| it.get_ref().as_str()) == Some(value)
        };
        match self {
            Self::Key(key) => section.contains_key(*key),
            Self::Value(key, value) => is(key, value),
            Self::Without(key) => !section.contains_key(*key),
            Self::Bodies => !section.contains_key("path_prefix") || is("protocol", "openai"),
        }
    }

    fn missing(&self) -> String {
        match self {
            Self::Key(key) => format!("without {key}"),
            Self::Value(key, value) => format!("unless {key} is {value:?}"),
            Self::Without(key) => format!("beside {key}"),
            Self::Bodies => "in a route whose bodies are not read".to_owned(),
        }
    }

    fn remedy(&self) -> String {
        match self {
            Self::Key(key) => format!("add {key}"),
            Self::Value(key, value) => format!("set {key} = {value:?}"),
            Self::Without(key) => format!("remove {key}"),
            Self::Bodies => "set protocol = \"openai\" if requests have its form".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::{Config, ConfigErrors};

    fn parse(text: &str) -> Result<Config, ConfigErrors> {
        let replica = "[[replica]]\nname = \"a\"\nurl = \"http://h:1\"\nmodels = [\"tiny\"]\n";
        let whole = format!("[[listener]]\naddress = \"127.0.0.1:0\"\n{replica}{text}");
        Config::parse(&whole, Path::new("file.toml"), [])
    }

    fn route(line: &str) -> String {
        format!("[[route]]\nname = \"r\"\n{line}\n")
    }

    #[test]
    fn a_setting_without_effect_is_told_with_its_line_and_a_remedy() {
        for (text, key, remedy) in [
            (route("protocol = \"openai\""), "protocol", "add path_prefix"),
            (route("replace_prefix = \"/y\""), "replace_prefix", "add path_prefix"),
            (route("model = \"tiny\""), "model", "add path_prefix"),
            (route("path_prefix = \"/x\"\ninject_usage = true"), "inject_usage", "\"openai\""),
            (
                route("path_prefix = \"/x\"\nprotocol = \"v2\"\ncontinue_streams = true"),
                "continue_streams",
                "\"openai\"",
            ),
        ] {
            let told = parse(&text).expect_err(&text).to_string();
            assert!(told.contains(key) && told.contains(remedy), "{told}");
            assert!(told.contains("file.toml:"), "{told}");
        }
    }

    #[test]
    fn so_is_one_of_another_table_than_a_route() {
        for (text, key, remedy) in [
            (
                "weight = 2\nclass = \"big\"\n[classes]\nbig = 4\n".to_owned(),
                "class does nothing beside weight",
                "remove weight",
            ),
            (
                "[[discovery]]\nfile = \"f\"\nreplica = { weight = 2, class = \"big\" }\n\
                 [classes]\nbig = 4\n"
                    .to_owned(),
                "class does nothing beside weight",
                "remove weight",
            ),
            (
                "[access_log]\nrequests = \"errors\"\nshare_percent = 5\n".to_owned(),
                "share_percent",
                "set requests = \"all\"",
            ),
            (
                "[geo]\nunknown_clients = \"no_rule\"\n".to_owned(),
                "unknown_clients",
                "add database",
            ),
            ("[traces]\nshare_percent = 5\n".to_owned(), "share_percent", "add endpoint"),
            ("[geo]\nasn_database = \"a.mmdb\"\n".to_owned(), "asn_database", "remove it"),
            (
                "kind = \"triton\"\nkv_events_port = 5557\n".to_owned(),
                "triton",
                "remove kv_events_port",
            ),
            (
                "kind = \"sglang\"\nkv_events_port = 5557\n".to_owned(),
                "sglang",
                "remove kv_events_port",
            ),
        ] {
            let told = parse(&text).expect_err(&text).to_string();
            assert!(told.contains(key) && told.contains(remedy), "{told}");
            assert!(told.contains("file.toml:"), "{told}");
        }
    }

    #[test]
    fn a_setting_beside_what_it_needs_is_none() {
        for text in [
            route("path_prefix = \"/x\"\nprotocol = \"openai\"\nreplace_prefix = \"/y\""),
            route("path_prefix = \"/x\"\nprotocol = \"openai\"\ninject_usage = true"),
            route("path_prefix = \"/x\"\ninject_usage = false"),
            "class = \"big\"\n[classes]\nbig = 4\n".to_owned(),
            "[access_log]\nrequests = \"all\"\nshare_percent = 5\n".to_owned(),
            "kind = \"vllm\"\nkv_events_port = 5557\n".to_owned(),
            "kv_events_port = 5557\n".to_owned(),
        ] {
            if let Err(errors) = parse(&text) {
                panic!("{text}: {errors}");
            }
        }
    }
}
