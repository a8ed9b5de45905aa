//! `[usage]` and `[[price]]`: stored usage of clients, and the cost of tokens.

use std::path::PathBuf;

use schemars::JsonSchema;
use serde::Deserialize;
use spillway_types::{ModelName, settings};
use spillway_usage::{Money, Price, PriceList};
use toml::Spanned;

use crate::error::{ConfigError, ConfigErrors};
use crate::source::Source;

/// Maximum number of prices in a config: as many as there are models in the cluster's agreed state.
const PRICES_MAX: usize = 4_096;

settings! {
    /// `[usage]`: what is kept of the usage of tenants, keys and models.
    pub(crate) struct UsageSection {
        /// Folder for usage data; by default `data` of `[cluster]`. Without either, usage is kept only
        /// in memory, for a week.
        #[schemars(with = "Option<String>")]
        folder: Option<Spanned<String>> = None,
        /// Number of days to keep, including today. Two months are enough for billing.
        #[schemars(range(min = 1, max = 3653))]
        days_max: u32 = 62,
    }
}

/// `[[price]]`: price of a model's tokens, for a million of them, in the currency that you choose.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct PriceSection {
    /// Model that serves the request, after aliases and splits are resolved. Without it, the price
    /// applies to all models without their own.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub(crate) model: Option<Spanned<String>>,
    /// Price of a million prompt tokens, with at most six decimal places.
    #[schemars(with = "f64", range(min = 0))]
    pub(crate) prompt_per_million: Spanned<f64>,
    /// Price of a million prompt tokens that a replica had in its cache; by default the price of
    /// prompt tokens.
    #[serde(default)]
    #[schemars(with = "Option<f64>", range(min = 0))]
    pub(crate) cached_per_million: Option<Spanned<f64>>,
    /// Price of a million generated tokens.
    #[schemars(with = "f64", range(min = 0))]
    pub(crate) completion_per_million: Spanned<f64>,
}

/// Place and length of the stored usage.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsageConfig {
    /// Folder of its own; `None` for that of the cluster.
    pub folder: Option<PathBuf>,
    /// Number of days to keep, including today.
    pub days_max: u32,
}

/// Checks the settings of stored usage and the prices of tokens.
///
/// # Errors
/// Returns all faults, with their lines.
pub(crate) fn lower_usage(
    source: &Source,
    section: &UsageSection,
    prices: &[PriceSection],
) -> Result<(UsageConfig, PriceList), ConfigErrors> {
    let folder = section.folder.as_ref().map(|folder| source.resolve(folder.get_ref()));
    let prices = lower_prices(source, prices)?;
    Ok((UsageConfig { folder, days_max: section.days_max }, prices))
}

/// Checks the prices of a config.
///
/// # Errors
/// Returns an error for each price that is no exact amount, or is there twice.
fn lower_prices(source: &Source, sections: &[PriceSection]) -> Result<PriceList, ConfigErrors> {
    if let Some(section) = sections.get(PRICES_MAX) {
        let message = format!("a config has {PRICES_MAX} prices at most");
        let remedy = "leave `model` out of one: it is the price of all other models";
        return Err(source.fault(section.at(), message, remedy).into());
    }
    let mut errors = ConfigErrors::default();
    let mut list = PriceList::default();
    let mut places = std::collections::BTreeMap::new();
    for section in sections {
        let model = section.model.as_ref().map(|model| model.get_ref().as_str());
        if model == Some("*") {
            let remedy = "leave `model` out: that is the price of all other models";
            errors.add(source.fault(section.at(), "no model is called \"*\"", remedy));
        }
        if let Some(earlier) = places.insert(model, section.at()) {
            let whose =
                model.map_or_else(|| "all other models".to_owned(), |model| format!("{model:?}"));
            let message = format!("a second price is that of {whose}");
            errors.add(source.collision(section.at(), earlier, message, "keep one of them"));
        }
        let Some(price) = errors.keep(section.lower(source)) else { continue };
        match model {
            Some(model) => drop(list.models.insert(ModelName::from(model), price)),
            None => list.default = Some(price),
        }
    }
    errors.or(list)
}

impl PriceSection {
    /// Checks the amounts.
    ///
    /// # Errors
    /// Returns an error for the first that is no exact amount.
    pub(crate) fn lower(&self, source: &Source) -> Result<Price, ConfigError> {
        let amount = |price: &Spanned<f64>| millionths(source, price, "price");
        let prompt = amount(&self.prompt_per_million)?;
        let cached = self.cached_per_million.as_ref().map(amount);
        let completion = amount(&self.completion_per_million)?;
        Ok(Price { prompt, cached: cached.transpose()?.unwrap_or(prompt), completion })
    }

    /// Returns the place that an error about the price as a whole is shown at.
    fn at(&self) -> std::ops::Range<usize> {
        self.model.as_ref().map_or_else(|| self.prompt_per_million.span(), Spanned::span)
    }
}

/// Returns an amount of money in millionths, in which it has to be exact.
///
/// # Errors
/// Returns an error that calls the amount no `what`.
pub(crate) fn millionths(
    source: &Source,
    amount: &Spanned<f64>,
    what: &str,
) -> Result<u64, ConfigError> {
    let exact = Money::of_number(*amount.get_ref()).ok().and_then(Money::millionths);
    exact.ok_or_else(|| {
        let message = format!("{} is no {what}", amount.get_ref());
        let remedy = "give a number from 0 on, with at most six digits behind the point";
        source.fault(amount.span(), message, remedy)
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::Config;

    fn parse(text: &str) -> Result<Config, ConfigErrors> {
        let whole = format!("[[listener]]\naddress = \"127.0.0.1:0\"\n{text}");
        Config::parse(&whole, Path::new("file.toml"), [])
    }

    fn fault(text: &str) -> String {
        parse(text).expect_err(text).to_string()
    }

    #[test]
    fn prices_are_exact_and_cached_tokens_cost_what_prompt_tokens_do() {
        let text = "[[price]]\nmodel = \"big\"\nprompt_per_million = 2.5\n\
                    cached_per_million = 0.0375\ncompletion_per_million = 10\n\
                    [[price]]\nprompt_per_million = 0.1\ncompletion_per_million = 0.000001\n";
        let prices = parse(text).unwrap().prices;
        let big = Price { prompt: 2_500_000, cached: 37_500, completion: 10_000_000 };
        let other = Price { prompt: 100_000, cached: 100_000, completion: 1 };
        assert_eq!(
            prices,
            PriceList { default: Some(other), models: [("big".into(), big)].into() }
        );
    }

    #[test]
    fn what_is_no_price_is_told_with_its_line_and_a_remedy() {
        for (amount, remedy) in [
            ("-1", "from 0 on"),
            ("nan", "from 0 on"),
            ("inf", "from 0 on"),
            ("0.0000001", "six digits"),
            ("1e30", "six digits"),
        ] {
            let told = fault(&format!(
                "[[price]]\nprompt_per_million = {amount}\ncompletion_per_million = 1\n"
            ));
            assert!(told.contains("file.toml:4:22") && told.contains(remedy), "{told}");
        }
        let one = "[[price]]\nprompt_per_million = 1\ncompletion_per_million = 1\n";
        assert!(fault(&one.repeat(2)).contains("a second price is that of all other models"));
        let one = format!("{one}model = \"big\"\n");
        let told = fault(&one.repeat(2));
        assert!(told.contains("a second price is that of \"big\""), "{told}");
    }

    #[test]
    fn usage_is_kept_for_two_months_unless_the_config_says_otherwise() {
        assert_eq!(parse("").unwrap().usage, UsageConfig { folder: None, days_max: 62 });
        let said = parse("[usage]\nfolder = \"kept\"\ndays_max = 7\n").unwrap().usage;
        assert_eq!(said, UsageConfig { folder: Some("kept".into()), days_max: 7 });
        for days in ["0", "3654"] {
            let told = fault(&format!("[usage]\ndays_max = {days}\n"));
            assert!(told.contains("file.toml:4:12") && told.contains("1 to 3653"), "{told}");
        }
    }
}
