//! Emulated replicas: one process, with a spare replica through which the others are controlled.

use std::{ffi::OsString, net::SocketAddr, path::Path};

use anyhow::Context as _;
use serde::Deserialize;
use serde_json::{Value, json};

use super::{control, ledger::Stats};
use crate::{guard::Guarded, request::MODEL};

/// Real time per emulated time. With the L4's profile a request of twenty tokens takes 110 ms and a
/// step 5 ms, well above the runtime's resolution of 1 ms.
pub(crate) const TIME_SCALE: f64 = 0.1;

/// Running replicas.
#[derive(Debug)]
pub(crate) struct Emulators {
    guarded: Guarded,
    /// Addresses that the gateway may get.
    addresses: Vec<SocketAddr>,
    /// Address of a replica that is never in a config and never broken, so that a crashed replica
    /// can be healed through it.
    spare: SocketAddr,
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
        command.extend(["--log", "warn", "emulate", "--json", "--profile", "l4"].map(Into::into));
        command.extend(["--listen", "127.0.0.1:0", "--model", MODEL].map(Into::into));
        for (option, value) in [
            ("--replicas", (u32::from(count) + 1).to_string()),
            ("--time-scale", TIME_SCALE.to_string()),
            ("--seed", seed.to_string()),
        ] {
            command.extend([option.into(), value.into()]);
        }
        let mut guarded = Guarded::spawn("emulator", &command, &folder.join("emulator.log"))?;
        let announced: Announced =
            serde_json::from_str(&guarded.first_line()?).context("addresses of the replicas")?;
        let mut addresses = announced.replicas;
        // One more was started than asked for.
        let spare = addresses.pop().context("no spare replica")?;
        anyhow::ensure!(addresses.len() == usize::from(count), "not as many replicas as asked");
        Ok(Self { guarded, addresses, spare })
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
        let body = json!({"fault": fault, "replica": replica}).to_string();
        let (status, reply) = control::post(self.spare, "/emulator/fault", body).await?;
        let text = String::from_utf8_lossy(&reply);
        anyhow::ensure!(status.is_success(), "the emulator refused {fault}: {text}");
        Ok(())
    }

    /// Reads the stats of a replica.
    ///
    /// # Errors
    /// Returns an error if the replica does not answer, as during a crash.
    pub(crate) async fn stats(&self, replica: u16) -> anyhow::Result<Stats> {
        let address = self.addresses.get(usize::from(replica)).context("no such replica")?;
        let (status, reply) = control::get(*address, "/emulator/stats").await?;
        anyhow::ensure!(status.is_success(), "no account of replica {replica}: {status}");
        serde_json::from_slice(&reply).context("account of a replica")
    }

    /// Returns an error if the process has ended.
    pub(crate) fn check_alive(&mut self) -> anyhow::Result<()> {
        self.guarded.check_alive()
    }
}
