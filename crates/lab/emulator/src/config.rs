//! Configuration of an emulator.

use std::net::{Ipv4Addr, SocketAddr};

use spillway_engine::EngineConfig;
use thiserror::Error;

use crate::options::ReplyOptions;

/// Configuration of one [`crate::Emulator`].
#[derive(Clone, Debug)]
pub struct EmulatorConfig {
    /// Address of replica 0; replica i listens on port + i. With port 0, each replica gets a free
    /// port of its own.
    pub listen: SocketAddr,
    /// Number of replicas in this process, at least 1.
    pub replicas: u16,
    /// Models that every replica serves, at least one.
    pub models: Vec<String>,
    /// Port at which replica 0 publishes KV events as vLLM does; replica i has port + i. With port 0,
    /// each replica gets a free one. `None` publishes nothing.
    pub kv_events_port: Option<u16>,
    /// Modelled machine and its limits, e.g. `EngineConfig::from_profile(Profile::L4)`.
    pub engine: EngineConfig,
    /// Real time divided by the modelled machine's time: 0.1 is ten times faster than the machine.
    pub time_scale: f64,
    /// Seed of the generated text and of random faults. The same seed and prompt give the same
    /// text.
    pub seed: u64,
    /// Form of the replies of every replica; it can be changed at run time.
    pub options: ReplyOptions,
    /// Largest request body in bytes; a larger one is answered with 413.
    pub body_bytes_max: usize,
    /// Largest number of open connections to one replica; more wait in the kernel's backlog.
    pub connections_max: usize,
    /// Largest number of stored responses (`/v1/responses`) of one replica; the oldest is removed
    /// first.
    pub responses_max: usize,
    /// Number of requests that [`crate::ReplicaStats::last_requests`] and
    /// [`crate::UsageReport::requests`] keep.
    pub records_max: usize,
}

impl Default for EmulatorConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
            replicas: 1,
            models: vec!["tiny".to_owned()],
            kv_events_port: None,
            engine: EngineConfig::default(),
            time_scale: 1.0,
            seed: 0,
            options: ReplyOptions::default(),
            body_bytes_max: 32 << 20,
            connections_max: 4096,
            responses_max: 1024,
            records_max: 4096,
        }
    }
}

/// Error: a configuration that no emulator can have.
#[derive(Clone, Debug, PartialEq, Error)]
pub enum EmulatorConfigError {
    /// `replicas` is 0.
    #[error("replicas must be at least 1")]
    NoReplicas,
    /// `models` is empty.
    #[error("models must name at least one model")]
    NoModels,
    /// The last replica's port would be above 65535.
    #[error("port {first} + {replicas} replicas is above 65535")]
    PortsExhausted {
        /// Port of replica 0.
        first: u16,
        /// Number of replicas in the configuration.
        replicas: u16,
    },
    /// `time_scale` is no number, or outside its limits.
    #[error("time_scale must be between 0.000001 and 1000000, not {0}")]
    TimeScale(f64),
}

impl EmulatorConfig {
    /// Returns the address of each replica.
    ///
    /// # Errors
    /// Returns an error if the configuration is impossible.
    pub(crate) fn addresses(&self) -> Result<Vec<SocketAddr>, EmulatorConfigError> {
        if self.replicas == 0 {
            return Err(EmulatorConfigError::NoReplicas);
        }
        if self.models.is_empty() {
            return Err(EmulatorConfigError::NoModels);
        }
        if !(1e-6..=1e6).contains(&self.time_scale) {
            return Err(EmulatorConfigError::TimeScale(self.time_scale));
        }
        let first = self.listen.port();
        let exhausted = EmulatorConfigError::PortsExhausted { first, replicas: self.replicas };
        let address = |index: u16| {
            let offset = if first == 0 { 0 } else { index };
            let port = first.checked_add(offset).ok_or_else(|| exhausted.clone())?;
            Ok(SocketAddr::new(self.listen.ip(), port))
        };
        (0..self.replicas).map(address).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(change: impl FnOnce(&mut EmulatorConfig)) -> Result<Vec<u16>, EmulatorConfigError> {
        let mut config = EmulatorConfig::default();
        change(&mut config);
        config.addresses().map(|all| all.iter().map(SocketAddr::port).collect())
    }

    #[test]
    fn replicas_listen_on_consecutive_ports() {
        let ports = check(|config| {
            config.listen.set_port(9101);
            config.replicas = 3;
        });
        assert_eq!(ports, Ok(vec![9101, 9102, 9103]));
    }

    #[test]
    fn port_zero_stays_zero_for_each_replica() {
        assert_eq!(check(|config| config.replicas = 2), Ok(vec![0, 0]));
    }

    #[test]
    fn impossible_configurations_are_refused() {
        assert_eq!(check(|config| config.replicas = 0), Err(EmulatorConfigError::NoReplicas));
        assert_eq!(check(|config| config.models.clear()), Err(EmulatorConfigError::NoModels));
        assert_eq!(
            check(|config| config.time_scale = 0.0),
            Err(EmulatorConfigError::TimeScale(0.0))
        );
        assert!(check(|config| config.time_scale = f64::NAN).is_err());
        let exhausted = EmulatorConfigError::PortsExhausted { first: 65_535, replicas: 2 };
        let result = check(|config| {
            config.listen.set_port(65_535);
            config.replicas = 2;
        });
        assert_eq!(result, Err(exhausted));
    }
}
