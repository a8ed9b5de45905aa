//! Proxies under comparison, each started with a config of its own.

use std::{
    ffi::OsString,
    fmt::Write as _,
    fs,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    os::unix::fs::MetadataExt as _,
    path::Path,
};

use anyhow::Context as _;
use spillway_harness::Process;

use crate::{load::Protocol, request::MODEL};

/// Worker processes of nginx, and workers or threads of every other proxy that takes a number.
/// Spillway takes as many as there are cores.
pub(crate) const WORKERS: usize = 2;

/// Running proxy.
#[derive(Debug)]
pub(crate) struct Proxy {
    /// Address of its listener.
    pub(crate) address: SocketAddr,
    /// Process under guard.
    pub(crate) process: Process,
}

/// Settings that all proxies share.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site<'a> {
    /// Existing folder for configs, logs and temporary files.
    pub(crate) folder: &'a Path,
    /// Addresses of the backends.
    pub(crate) backends: &'a [SocketAddr],
    /// Protocol of the clients.
    pub(crate) protocol: Protocol,
}

/// Starts nginx; `name` distinguishes several of them.
pub(crate) fn start_nginx(program: &Path, name: &str, site: Site<'_>) -> anyhow::Result<Proxy> {
    let folder = site.folder.join(name);
    fs::create_dir_all(&folder)?;
    let address = free_address()?;
    // The owner of the folder is the effective user of this process.
    let is_root = fs::metadata("/proc/self")?.uid() == 0;
    let config = folder.join("nginx.conf");
    fs::write(&config, nginx_config(address, site, &folder, is_root))?;
    // Before nginx has read its config it logs to a path set when it was built, which may not be
    // writable here.
    let error_log = folder.join("early.log");
    let command: Vec<OsString> = vec![
        program.into(),
        "-p".into(),
        folder.clone().into(),
        "-e".into(),
        error_log.into(),
        "-c".into(),
        config.into(),
    ];
    Ok(Proxy { address, process: Process::guarded(name, &command, &folder.join("stderr.log"))? })
}

/// Settings of a Spillway that are not its defaults.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SpillwaySetup<'a> {
    /// Policy of the route; `None` leaves it to Spillway, as users do.
    pub(crate) policy: Option<&'a str>,
    /// Lines of each replica.
    pub(crate) replica: &'a str,
    /// Lines at the end of the config.
    pub(crate) more: &'a str,
}

/// Starts Spillway with defaults, except addresses, replicas, and `setup`.
pub(crate) fn start_spillway(
    program: &Path,
    name: &str,
    setup: SpillwaySetup<'_>,
    site: Site<'_>,
) -> anyhow::Result<Proxy> {
    let (address, command) = spillway_command(program, name, setup, site)?;
    let log = site.folder.join(name).join("stderr.log");
    Ok(Proxy { address, process: Process::guarded(name, &command, &log)? })
}

/// Writes the config of a Spillway. Returns the address of its listener, and the program with its
/// arguments.
pub(crate) fn spillway_command(
    program: &Path,
    name: &str,
    setup: SpillwaySetup<'_>,
    site: Site<'_>,
) -> anyhow::Result<(SocketAddr, Vec<OsString>)> {
    let folder = site.folder.join(name);
    fs::create_dir_all(&folder)?;
    let (address, admin) = (free_address()?, free_address()?);
    let config = folder.join("spillway.toml");
    fs::write(&config, spillway_config(address, admin, setup, site.backends)?)?;
    Ok((address, vec![program.into(), "run".into(), "--config".into(), config.into()]))
}

/// Returns the config of an nginx set up for speed: keep-alive on both sides without a limit of
/// requests, no access log, no buffering of answers (which would stall streams, and makes no difference for
/// small answers), and whole request bodies in memory first: the cheapest way, and the closest to a
/// gateway that must read a body before it can choose a replica.
fn nginx_config(address: SocketAddr, site: Site<'_>, folder: &Path, is_root: bool) -> String {
    let mut servers = String::new();
    for backend in site.backends {
        servers.push_str(&format!("    server {backend};\n"));
    }
    // Before version 1.25 a clear-text listener takes either HTTP/1.1 or HTTP/2.
    let listen = match site.protocol {
        Protocol::Http1 => address.to_string(),
        Protocol::Http2 => format!("{address} http2"),
    };
    // Otherwise workers would drop root for a user that cannot write to the folder.
    let user = if is_root { "user root;\n" } else { "" };
    let folder = folder.display();
    format!(
        "daemon off;\n{user}worker_processes {WORKERS};\nworker_rlimit_nofile 65536;\n\
         pid {folder}/nginx.pid;\nerror_log {folder}/error.log error;\n\
         events {{ worker_connections 8192; }}\n\
         http {{\n\
         \x20 access_log off;\n  tcp_nodelay on;\n\
         \x20 keepalive_timeout 300s;\n  keepalive_requests 1000000000;\n\
         \x20 client_max_body_size 64m;\n  client_body_buffer_size 256k;\n\
         \x20 http2_max_concurrent_streams 1024;\n\
         \x20 client_body_temp_path {folder}/body;\n  proxy_temp_path {folder}/proxy;\n\
         \x20 fastcgi_temp_path {folder}/fastcgi;\n  uwsgi_temp_path {folder}/uwsgi;\n\
         \x20 scgi_temp_path {folder}/scgi;\n\
         \x20 upstream replicas {{\n    least_conn;\n{servers}\
         \x20   keepalive 256;\n    keepalive_requests 1000000000;\n    keepalive_timeout 300s;\n  }}\n\
         \x20 server {{\n    listen {listen};\n\
         \x20   location / {{\n      proxy_pass http://replicas;\n      proxy_http_version 1.1;\n\
         \x20     proxy_set_header Connection \"\";\n      proxy_buffering off;\n    }}\n  }}\n}}\n"
    )
}

fn spillway_config(
    address: SocketAddr,
    admin: SocketAddr,
    setup: SpillwaySetup<'_>,
    backends: &[SocketAddr],
) -> anyhow::Result<String> {
    let mut config = format!(
        "[node]\nname = \"bench\"\nregion = \"local\"\nworkers = 0\n\n\
         [[listener]]\naddress = \"{address}\"\n\n[admin]\naddress = \"{admin}\"\n\n\
         [[route]]\nname = \"llm\"\n"
    );
    if let Some(policy) = setup.policy {
        writeln!(config, "policy = \"{policy}\"")?;
    }
    for (index, backend) in backends.iter().enumerate() {
        write!(
            config,
            "\n[[replica]]\nname = \"replica-{index}\"\nurl = \"http://{backend}\"\n\
             models = [\"{MODEL}\"]\n{}",
            setup.replica,
        )?;
    }
    write!(config, "\n{}", setup.more)?;
    Ok(config)
}

/// Returns a loopback address with a free port. If another process takes the port before the proxy
/// does, the proxy fails to start and the run ends.
pub(crate) fn free_address() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("find a free port")?;
    Ok(listener.local_addr()?)
}

#[cfg(test)]
#[path = "proxy_test.rs"]
mod tests;
