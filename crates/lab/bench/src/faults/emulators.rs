//! Emulated replicas: one process, with a spare replica through which the others are controlled.

use std::{ffi::OsString, net::SocketAddr, path::Path};

use anyhow::Context as _;
use serde::Deserialize;
use serde_json::{Value, json};
use spillway_harness::{LoadClient, Process, emulate};

use super::ledger::Stats;
use crate::request::MODEL;

/// Real time per emulated time. With the L4's profile a request of twenty tokens takes 110 ms and a
/// step 5 ms, well above the runtime's resolution of 1 ms.
pub(crate) const TIME_SCALE: f64 = 0.1;

/// Running replicas.
#[derive(Debug)]
pub(crate) struct Emulators {
    /// Process under guard.
    pub(crate) process: Process,
    /// Addresses that the gateway may get.
    addresses: Vec<SocketAddr>,
    /// Clients of these replicas.
    clients: Vec<LoadClient>,
    /// Client of a replica that is never in a config and never broken, so that a crashed replica
    /// can be healed through it.
    spare: LoadClient,
}

#[derive(Deserialize)]
struct Announced {
    replicas: Vec<SocketAddr>,
}

impl Emulators {
    /// Starts `count` replicas.
    ///
    /// # Errors
    /// Returns an error if the process does not announce as many addresses.
    pub(crate) fn start(
        spillway: &Path,
        count: u16,
        seed: u64,
        folder: &Path,
    ) -> anyhow::Result<Self> {
        let mut command: Vec<OsString> = vec![spillway.into()];
        let any_port = SocketAddr::from(([127, 0, 0, 1], 0));
        command.extend(["--log", "warn"].map(Into::into));
        command.extend(emulate(any_port, MODEL, "l4", TIME_SCALE).into_iter().map(Into::into));
        command.push("--json".into());
        // One replica more than asked for, to heal the others through.
        for (option, number) in [("--replicas", u64::from(count) + 1), ("--seed", seed)] {
            command.extend([option.into(), number.to_string().into()]);
        }
        let mut process = Process::guarded("emulator", &command, &folder.join("emulator.log"))?;
        let announced: Announced =
            serde_json::from_str(&process.first_line()?).context("addresses of the replicas")?;
        let mut addresses = announced.replicas;
        // One more was started than asked for.
        let spare = addresses.pop().context("no spare replica")?;
        anyhow::ensure!(addresses.len() == usize::from(count), "not as many replicas as asked");
        let clients = addresses.iter().map(|address| LoadClient::new(*address)).collect();
        Ok(Self { process, addresses, clients, spare: LoadClient::new(spare) })
    }

    /// Returns the addresses of the replicas, without the spare one.
    pub(crate) fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Breaks a replica with `setting`, or heals it with `None`. Returns when this has taken
    /// effect.
    ///
    /// # Errors
    /// Returns an error if the emulator refuses.
    pub(crate) async fn set_fault(
        &self,
        replica: u16,
        setting: Option<Value>,
    ) -> anyhow::Result<()> {
        let fault = setting.unwrap_or_else(|| json!({"kind": "none"}));
        let body = json!({"fault": fault, "replica": replica});
        self.spare.post("/emulator/fault", body).await
    }

    /// Reads the stats of a replica.
    ///
    /// # Errors
    /// Returns an error if the replica does not answer, as during a crash.
    pub(crate) async fn stats(&self, replica: u16) -> anyhow::Result<Stats> {
        let client = self.clients.get(usize::from(replica)).context("no such replica")?;
        let stats = client.get("/emulator/stats").await?;
        serde_json::from_slice(&stats).context("account of a replica")
    }
}
