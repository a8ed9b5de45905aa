//! Warnings of limits and budgets that no request counts for.

use toml::Spanned;

use crate::access_section::AuthMode;
use crate::error::ConfigError;
use crate::file::ConfigFile;
use crate::source::Source;

/// Returns a warning for each limit and budget that no request counts for. In a cluster requests of
/// other nodes may, and the agreed state may have prices.
pub(crate) fn unused_terms(source: &Source, file: &ConfigFile) -> Vec<ConfigError> {
    if file.cluster.is_some() {
        return Vec::new();
    }
    let mut found = Vec::new();
    if names_nobody(file) {
        found.extend(limits_of_nobody(source, file));
    }
    found.extend(budget_without_price(source, file));
    found
}

/// Returns true if no listener learns who asks.
fn names_nobody(file: &ConfigFile) -> bool {
    let is_open = |own: Option<AuthMode>| match own.or(file.auth.mode) {
        Some(mode) => mode == AuthMode::None,
        None => file.key.is_empty(),
    };
    file.listener.iter().all(|listener| is_open(listener.auth))
}

fn limits_of_nobody(source: &Source, file: &ConfigFile) -> Vec<ConfigError> {
    let is_of_somebody = |name: &&Spanned<String>| {
        ["tenant:", "key:"].iter().any(|kind| name.get_ref().starts_with(kind))
    };
    let names = file.limit.iter().map(|limit| &limit.name).filter(is_of_somebody);
    let warn = |name: &Spanned<String>| {
        let message =
            format!("{} limits nothing: no listener asks whose a request is", name.get_ref());
        let remedy =
            "set auth of a listener to \"keys\" or \"headers\", or limit global or a model";
        source.fault(name.span(), message, remedy)
    };
    names.map(warn).collect()
}

/// Warns once, at the first budget: with one price all budgets count.
fn budget_without_price(source: &Source, file: &ConfigFile) -> Option<ConfigError> {
    let mut budgets = file
        .tenant
        .iter()
        .filter_map(|tenant| tenant.budget_per_day.as_ref().or(tenant.budget_per_month.as_ref()));
    let budget = budgets.next().filter(|_| file.price.is_empty())?;
    let message = "the budget is never spent: nothing has a price";
    let remedy = "add a [[price]], without model for all models, or remove the budget";
    Some(source.fault(budget.span(), message, remedy))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use crate::Config;

    fn warnings(auth: &str, more: &str) -> String {
        let text = format!(
            "[[listener]]\naddress = \"127.0.0.1:0\"\n{auth}\n[[replica]]\nname = \"a\"\n\
             url = \"http://h:1\"\nmodels = [\"tiny\"]\n{more}"
        );
        Config::parse(&text, Path::new("file.toml"), []).expect(&text).warnings.to_string()
    }

    #[test]
    fn a_limit_of_somebody_counts_for_nothing_where_nobody_is_known() {
        let limit = |name: &str| format!("[[limit]]\nname = \"{name}\"\nconcurrency = 1\n");
        for auth in ["", "auth = \"none\""] {
            let told = warnings(auth, &limit("tenant:acme"));
            assert!(told.contains("tenant:acme limits nothing") && told.contains(":9:8"), "{told}");
        }
        let proxied = "auth = \"headers\"\ntrusted_proxies = [\"10.0.0.0/8\"]";
        assert_eq!(warnings(proxied, &limit("tenant:acme")), "");
        assert_eq!(warnings("auth = \"keys\"", &limit("tenant:acme")), "");
        assert_eq!(warnings("", &limit("global")), "");
    }

    #[test]
    fn a_budget_needs_a_price() {
        let budget = "[[tenant]]\nname = \"acme\"\nbudget_per_month = 10\n";
        let told = warnings("", budget);
        assert!(told.contains("never spent") && told.contains("add a [[price]]"), "{told}");
        let price = "[[price]]\nprompt_per_million = 1\ncompletion_per_million = 1\n";
        assert!(!warnings("", &format!("{budget}{price}")).contains("never spent"));
    }
}
