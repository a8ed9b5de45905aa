//! Nodes and emulated replicas for a test.

use std::fmt::{self, Display};
use std::path::Path;
use std::sync::Arc;

use spillway_config::Config;
use spillway_emulator::{Emulator, EmulatorConfig};
use spillway_health::HealthConfig;
use spillway_node::Node;

use crate::page::Page;

/// A config under construction. Clients connect to a free port. One worker serves, so that each
/// connection finds what the one before left in a pool.
#[derive(Clone, Debug)]
pub struct Setup {
    keys: Vec<String>,
    tables: Vec<String>,
    listener: String,
    constants: Vec<Constants>,
}

/// Change of constants in a config that are no settings.
#[derive(Clone)]
struct Constants(Arc<dyn Fn(&mut Config) + Send + Sync>);

impl fmt::Debug for Constants {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Constants")
    }
}

impl Default for Setup {
    fn default() -> Self {
        Self::new()
    }
}

impl Setup {
    /// A node without replicas.
    #[must_use]
    pub fn new() -> Self {
        Self {
            keys: Vec::new(),
            tables: Vec::new(),
            listener: String::new(),
            constants: Vec::new(),
        }
    }

    /// Sets `table.key = value`, as TOML has it.
    #[must_use]
    pub fn set(mut self, line: impl Into<String>) -> Self {
        self.keys.push(line.into());
        self
    }

    /// Changes constants that are no settings, so that a test needs less load or time.
    #[must_use]
    pub fn with(mut self, change: impl Fn(&mut Config) + Send + Sync + 'static) -> Self {
        self.constants.push(Constants(Arc::new(change)));
        self
    }

    /// Changes constants of the health of all replicas in the config.
    #[must_use]
    pub fn with_health(self, change: impl Fn(&mut HealthConfig) + Send + Sync + 'static) -> Self {
        self.with(move |config| {
            config.world.replicas.iter_mut().for_each(|replica| change(&mut replica.care.health));
        })
    }

    /// Applies the changed constants.
    pub(crate) fn apply(&self, config: &mut Config) {
        self.constants.iter().for_each(|Constants(change)| change(config));
    }

    /// Adds lines to the listener.
    #[must_use]
    pub fn listener(mut self, lines: &str) -> Self {
        self.listener.push_str(lines);
        self.listener.push('\n');
        self
    }

    /// Adds a table such as a route.
    #[must_use]
    pub fn table(mut self, text: impl Into<String>) -> Self {
        self.tables.push(text.into());
        self
    }

    /// Adds a replica of the model `tiny`.
    #[must_use]
    pub fn replica(self, name: &str, address: impl Display) -> Self {
        self.replica_with(name, &format!("http://{address}"), "")
    }

    /// Adds a replica of the model `tiny` with more settings.
    #[must_use]
    pub fn replica_with(self, name: &str, url: &str, lines: &str) -> Self {
        let models = if lines.contains("models =") { "" } else { "models = [\"tiny\"]" };
        self.table(format!("[[replica]]\nname = \"{name}\"\nurl = \"{url}\"\n{models}\n{lines}"))
    }

    /// Adds all replicas of an emulator as `r0`, `r1`, ...
    #[must_use]
    pub fn emulated(mut self, emulator: &Emulator) -> Self {
        for (index, address) in emulator.addresses().iter().enumerate() {
            self = self.replica(&format!("r{index}"), address);
        }
        self
    }

    /// The config's text.
    #[must_use]
    pub fn text(&self) -> String {
        let mut text = self.keys.join("\n");
        if !text.contains("node.workers") {
            text.push_str("\nnode.workers = 1");
        }
        // Tests count the requests of a replica, and use added replicas at once.
        for (key, value) in [("health.check", "\"off\""), ("health.slow_start_ms", "0")] {
            if !text.contains(key) {
                text.push_str(&format!("\n{key} = {value}"));
            }
        }
        text.push_str("\nadmin.address = \"127.0.0.1:0\"\n[[listener]]\n");
        text.push_str("address = \"127.0.0.1:0\"\n");
        text.push_str(&self.listener);
        text.push_str(&self.tables.join("\n"));
        text
    }

    /// Starts the node.
    ///
    /// # Panics
    /// If the config is wrong.
    pub async fn start(&self) -> Node {
        Node::start(self.config()).await.expect("a node")
    }

    /// Returns the config.
    ///
    /// # Panics
    /// If the config is wrong.
    pub fn config(&self) -> Config {
        let config = Config::parse(&self.text(), Path::new("test.toml"), []);
        let mut config = config.unwrap_or_else(|error| panic!("{error}\n{}", self.text()));
        self.apply(&mut config);
        config
    }
}

/// Emulated replicas that are a thousand times faster than a real machine.
///
/// # Panics
/// If there is no free port.
pub async fn emulator(replicas: u16) -> Emulator {
    slow_emulator(replicas, 0.001).await
}

/// Emulated replicas at a chosen speed: a token takes about 30 ms × `time_scale`.
///
/// # Panics
/// If there is no free port.
pub async fn slow_emulator(replicas: u16, time_scale: f64) -> Emulator {
    let config = EmulatorConfig { replicas, time_scale, ..EmulatorConfig::default() };
    Emulator::start(config).await.expect("an emulator")
}

impl Page {
    /// The page of a node as it is now.
    ///
    /// # Panics
    /// If it is malformed.
    #[must_use]
    pub fn of(node: &Node) -> Self {
        Self::parse(&node.metrics()).expect("a well-formed page")
    }
}
