//! Pages of `docs/` that texts of the program link to, each declared once.
//!
//! Help texts name a page by its file in the sources, nodes by its address on their admin listener,
//! where the book is served in packaged builds. A test checks that each page and anchor exists.

use std::fmt::{self, Display};

/// A page of `docs/`, with an anchor where a part of it is meant. Displays as the file in the
/// sources, e.g. `docs/guides/alerts.md#spillwayerrors`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    /// Path below `docs/`, without `.md`.
    path: &'static str,
    /// Anchor of a heading; empty for the page as a whole.
    anchor: &'static str,
}

macro_rules! pages {
    ($($(#[doc = $doc:literal])+ $name:ident = $path:literal $(# $anchor:literal)?;)+) => {
        impl Page {
            $($(#[doc = $doc])+ pub const $name: Self = Self { path: $path, anchor: concat!($($anchor)?) };)+

            /// All pages.
            pub const ALL: &[Self] = &[$(Self::$name),+];
        }
    };
}

pages! {
    /// The index of all pages.
    INDEX = "README";
    /// Completions and manual pages.
    COMPLETIONS = "guides/install" # "completions-and-manual-pages";
    /// The config file.
    CONFIGURATION = "guides/configuration";
    /// Keys of clients.
    AUTH = "guides/auth";
    /// Usage, prices and budgets.
    USAGE = "guides/usage";
    /// Requests one by one: `explain`, `tail`, traces.
    REQUESTS = "guides/requests";
    /// Symptoms of the first hour.
    TROUBLESHOOTING = "guides/troubleshooting";
    /// Incidents of nodes and clusters.
    INCIDENTS = "guides/incidents";
    /// A slow or flapping replica.
    SLOW_REPLICA = "guides/incidents" # "a-slow-replica";
    /// A region that is lost.
    LOST_REGION = "guides/incidents" # "a-region-that-is-cut-off";
    /// A client that uses up its limit.
    HOT_TENANT = "guides/incidents" # "a-hot-tenant";
    /// A disk that is full.
    FULL_DISK = "guides/incidents" # "a-full-disk";
    /// A certificate that ends.
    ENDING_CERTIFICATE = "guides/incidents" # "a-certificate-that-ends";
    /// Requests that fail.
    FAILING_REQUESTS = "guides/incidents" # "requests-that-fail";
    /// A node whose clock differs from those of others.
    WRONG_CLOCK = "guides/incidents" # "a-wrong-clock";
    /// A name server that does not answer.
    HANGING_NAME_SERVER = "guides/incidents" # "a-name-server-that-hangs";
    /// A config file that the next start would refuse.
    REFUSED_CONFIG = "guides/incidents" # "a-config-that-is-refused";
    /// Kinds of problems.
    PROBLEM_KINDS = "guides/incidents" # "kinds-of-problems";
    /// Replies of a region that fail.
    FAILING_REGION = "guides/alerts" # "spillwayregionfailing";
    /// Replicas that do not serve.
    REPLICA_DOWN = "guides/alerts" # "spillwayreplicadown";
    /// Requests that are refused for lack of room.
    SHEDDING = "guides/alerts" # "spillwayshedding";
    /// A model that is not served.
    MODEL_NOT_FOUND = "guides/troubleshooting" # "404-for-a-model";
    /// Splits, versions, fallbacks, retries and hedging.
    ROUTES = "guides/routes";
    /// Splits of models.
    SPLITS = "guides/routes" # "splits";
    /// Certificates.
    CERTIFICATES = "guides/certificates";
    /// Announcing an address to routers.
    ANYCAST = "guides/steering" # "anycast";
    /// Upgrades.
    UPGRADE = "guides/upgrade";
    /// Ways back after losses.
    DISASTER_RECOVERY = "guides/disaster-recovery";
    /// The API of the admin listener.
    ADMIN_API = "reference/admin-api";
    /// All commands.
    COMMANDS = "reference/commands";
    /// Columns of the table of replicas.
    REPLICAS_TABLE = "reference/tables" # "replicas";
    /// Columns of the table of regions.
    REGIONS_TABLE = "reference/tables" # "regions";
    /// Columns of the table of nodes.
    NODES_TABLE = "reference/tables" # "nodes";
    /// The emulated model servers.
    EMULATOR = "reference/emulator";
    /// The state that the cluster agrees on.
    CONTROL_PLANE = "explanation/control-plane";
    /// Nodes that join and leave.
    NODES = "explanation/control-plane" # "adding-and-removing-nodes";
    /// Limits in all regions together.
    LIMITS = "explanation/limits";
    /// The index of what replicas have cached.
    PREFIX_INDEX = "explanation/prefix-index" # "hot-blocks";
    /// Location databases.
    LOCATIONS = "guides/configuration" # "location-databases";
}

impl Page {
    /// Returns the path below `docs/` with the anchor, e.g. `guides/alerts.md#spillwayerrors`.
    #[must_use]
    pub fn source(self) -> String {
        format!("{}.md{}", self.path, self.fragment())
    }

    /// Returns the path and anchor on a node's admin listener, e.g.
    /// `/docs/guides/alerts.html#spillwayerrors`.
    #[must_use]
    pub fn address(self) -> String {
        format!("/docs/{}.html{}", self.path, self.fragment())
    }

    fn fragment(self) -> String {
        if self.anchor.is_empty() { String::new() } else { format!("#{}", self.anchor) }
    }
}

impl Display for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "docs/{}", self.source())
    }
}

/// Returns the path and anchor on a node's admin listener for what [`Page::source`] returned.
#[must_use]
pub fn address_of(source: &str) -> String {
    let (file, anchor) = source.split_once('#').unwrap_or((source, ""));
    let path = file.strip_suffix(".md").unwrap_or(file);
    let fragment = if anchor.is_empty() { String::new() } else { format!("#{anchor}") };
    format!("/docs/{path}.html{fragment}")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    /// Returns the anchors of the headings of a page, as GitHub and the book make them.
    fn anchors(text: &str) -> BTreeSet<String> {
        let kept = |c: &char| c.is_alphanumeric() || " -_".contains(*c);
        let headings = text.lines().filter(|line| line.starts_with('#'));
        let titles = headings.map(|line| line.trim_start_matches('#').trim().to_lowercase());
        titles.map(|it| it.chars().filter(kept).collect::<String>().replace(' ', "-")).collect()
    }

    #[test]
    fn every_page_exists_with_its_anchor() {
        let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../docs");
        for page in Page::ALL {
            let text = fs::read_to_string(docs.join(format!("{}.md", page.path)));
            let text = text.unwrap_or_else(|error| panic!("{page}: {error}"));
            assert!(page.anchor.is_empty() || anchors(&text).contains(page.anchor), "{page}");
        }
    }

    #[test]
    fn no_page_is_declared_twice() {
        let all: BTreeSet<String> = Page::ALL.iter().map(|page| page.source()).collect();
        assert_eq!(all.len(), Page::ALL.len());
    }

    #[test]
    fn a_page_has_a_file_in_the_sources_and_an_address_on_nodes() {
        let page = Page::SHEDDING;
        assert_eq!(page.to_string(), "docs/guides/alerts.md#spillwayshedding");
        assert_eq!(page.address(), "/docs/guides/alerts.html#spillwayshedding");
        for page in Page::ALL {
            assert_eq!(address_of(&page.source()), page.address());
        }
    }
}
