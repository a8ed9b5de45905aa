//! `[geo]` and `[[residency]]`: locations of clients, and the regions that may serve them.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use spillway_geo::{ClientRule, ClientRules, Locator, LocatorError, UnknownClients};
use spillway_types::{Country, RegionName, Residency, settings};
use spillway_view::Locations;
use toml::Spanned;

use crate::error::{ConfigError, ConfigErrors, all};
use crate::source::Source;

/// Maximum number of rules in a config: as many as there are countries.
const RULES_MAX: usize = 256;

/// Maximum size of a database file in bytes. Databases are kept in memory, twice while a changed one
/// is read.
const DATABASE_BYTES_MAX: u64 = 256 << 20;

settings! {
    /// `[geo]`: location databases.
    pub(crate) struct GeoSection {
        /// Database of cities or countries in MMDB format, such as those of MaxMind and DB-IP, of up
        /// to 256 MiB. Read again when the file changes.
        #[schemars(with = "Option<String>")]
        database: Option<Spanned<String>> = None,
        /// Database of autonomous systems, which decide nothing: naming one is an error.
        #[schemars(skip)]
        asn_database: Option<Spanned<String>> = None,
        /// `[[residency]]` rules that apply to clients whose country is unknown.
        unknown_clients: Unknown = Unknown::default(),
    }
}

/// Rules that hold for clients whose country is unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Unknown {
    /// All rules, as the client may be in any of the countries.
    #[default]
    EveryRule,
    /// No rule.
    NoRule,
}

/// `[[residency]]`: regions that may serve clients of certain countries.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ResidencySection {
    /// Countries of the clients that the rule applies to, e.g. `DE`.
    #[schemars(with = "Vec<String>")]
    pub(crate) clients: Spanned<Vec<Country>>,
    /// Regions that may serve their requests; all by default.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub(crate) regions: Vec<Spanned<RegionName>>,
    /// Countries whose regions may serve their requests; all by default.
    #[serde(default)]
    #[schemars(with = "Vec<String>")]
    pub(crate) countries: Vec<Country>,
}

/// Location databases and the rules that depend on them. The files are not read yet.
#[derive(Clone, Debug, Default)]
pub struct GeoConfig {
    places: Option<DatabaseFile>,
    rules: ClientRules,
}

/// File of a database, and where the config names it.
#[derive(Clone, Debug)]
struct DatabaseFile {
    path: PathBuf,
    /// Fault at the line that names the file, without a message.
    named: ConfigError,
}

/// Checks both sections.
///
/// # Errors
/// Returns all faults, with their lines.
pub(crate) fn lower_geo(
    source: &Source,
    section: GeoSection,
    rules: Vec<ResidencySection>,
) -> Result<GeoConfig, ConfigErrors> {
    let mut errors = ConfigErrors::default();
    if let Some(asns) = &section.asn_database {
        let message = "asn_database does nothing: no rule goes by autonomous systems";
        let remedy = "remove it; `spillway geo --asn-database FILE` looks addresses up in one";
        errors.add(source.fault(asns.span(), message, remedy));
    }
    if let (None, Some(rule)) = (&section.database, rules.first()) {
        let message = "where clients are is unknown without a location database";
        let remedy = "add database = \"...\" to [geo], or remove [[residency]]";
        errors.add(source.fault(rule.clients.span(), message, remedy));
    }
    if let Some(rule) = rules.get(RULES_MAX) {
        let message = format!("a config has {RULES_MAX} rules for clients at most");
        errors.add(source.fault(rule.clients.span(), message, "name several countries in one"));
    }
    let unknown = match section.unknown_clients {
        Unknown::EveryRule => UnknownClients::EveryRule,
        Unknown::NoRule => UnknownClients::NoRule,
    };
    let rules = all(rules.into_iter().map(|rule| rule.lower(source)));
    let rules = errors.keep(rules).unwrap_or_default();
    let file = |name: Spanned<String>| DatabaseFile {
        path: source.resolve(name.get_ref()),
        named: source.fault(name.span(), "", ""),
    };
    errors.or(GeoConfig {
        places: section.database.map(file),
        rules: ClientRules::new(&rules, unknown),
    })
}

impl ResidencySection {
    fn lower(self, source: &Source) -> Result<ClientRule, ConfigError> {
        let span = self.clients.span();
        if self.clients.get_ref().is_empty() {
            let remedy = "name countries, e.g. clients = [\"DE\", \"FR\"]";
            return Err(source.fault(span, "the rule is for clients of no country", remedy));
        }
        let regions: Vec<RegionName> = self.regions.into_iter().map(Spanned::into_inner).collect();
        let residency = Residency::new(regions, self.countries);
        if residency.is_anywhere() {
            let message = "the rule lets every region serve";
            return Err(source.fault(span, message, "add regions or countries to it"));
        }
        Ok(ClientRule { clients: self.clients.into_inner().into_iter().collect(), residency })
    }
}

impl GeoConfig {
    /// Reads and checks the database, which may take seconds: not for threads that serve.
    ///
    /// # Errors
    /// Returns an error at the line that names the file, if the file can't be read, is too large,
    /// or is not the database that it should be.
    pub fn open(&self) -> Result<Locations, ConfigError> {
        let Some(places) = &self.places else { return Ok(Locations::default()) };
        let bytes = places.read()?;
        let locator =
            Locator::from_bytes(bytes, None).map_err(|error| places.no_database(&error))?;
        Ok(Locations { locator: Some(Arc::new(locator)), rules: self.rules.clone() })
    }

    /// Returns the files to watch.
    pub fn files(&self) -> Vec<PathBuf> {
        self.places.iter().map(|file| file.path.clone()).collect()
    }
}

impl DatabaseFile {
    fn read(&self) -> Result<Vec<u8>, ConfigError> {
        let unreadable = |error: std::io::Error| {
            self.fault(format!("can't read it: {error}"), "check path and rights")
        };
        let bytes = read_at_most(&self.path, DATABASE_BYTES_MAX).map_err(unreadable)?;
        bytes.ok_or_else(|| {
            let message = format!("the file has more than {DATABASE_BYTES_MAX} bytes, or is none");
            self.fault(message, "take a smaller database")
        })
    }

    fn no_database(&self, error: &LocatorError) -> ConfigError {
        let remedy = match error {
            LocatorError::OtherType { .. } => {
                "take a database with the records of MaxMind's GeoLite2 or GeoIP2, e.g. of DB-IP"
            }
            LocatorError::Damaged(_) | LocatorError::Tangled(_) => "download the file again",
        };
        self.fault(error.to_string(), remedy)
    }

    fn fault(&self, message: String, remedy: &str) -> ConfigError {
        let message = format!("{}: {message}", self.path.display());
        ConfigError { message, remedy: remedy.to_owned(), ..self.named.clone() }
    }
}

/// Reads a file; `None` if it is longer than `bytes_max` or not a regular file: reading from a pipe
/// may never end.
fn read_at_most(path: &Path, bytes_max: u64) -> std::io::Result<Option<Vec<u8>>> {
    let about = std::fs::metadata(path)?;
    if !about.is_file() || about.len() > bytes_max {
        return Ok(None);
    }
    let mut bytes = Vec::with_capacity(usize::try_from(about.len()).unwrap_or_default());
    // The file may have grown since.
    File::open(path)?.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok(Some(bytes).filter(|bytes| bytes.len() as u64 <= bytes_max))
}
