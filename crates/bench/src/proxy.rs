//! The proxies that are compared, each started with a configuration of its own.

use std::{
    ffi::OsString,
    fmt::Write as _,
    fs,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    os::unix::fs::MetadataExt as _,
    path::Path,
};

use anyhow::Context as _;
use clap::ValueEnum;
use serde::Serialize;

use crate::{guard::Guarded, load::Protocol, request::MODEL};

/// How Spillway divides connections among its workers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[value(rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub(crate) enum Layout {
    /// One runtime, listener and connection pool per core.
    PerCore,
    /// One runtime with work stealing.
    Shared,
}

impl Layout {
    /// Its name in the configuration.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::PerCore => "per_core",
            Self::Shared => "shared",
        }
    }
}

/// What nginx does with request bodies. It decides most of what large requests cost it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum, Serialize)]
#[value(rename_all = "snake_case")]
#[serde(rename_all = "snake_case")]
pub(crate) enum NginxBodies {
    /// Kept whole in memory first: its cheapest way, and the closest to a gateway that must read a
    /// body before it can choose.
    Memory,
    /// Passed on as they come.
    Streamed,
    /// As nginx does by itself: above 16 KB through a temporary file.
    Default,
}

impl NginxBodies {
    fn directive(self) -> &'static str {
        match self {
            Self::Memory => "client_body_buffer_size 256k;",
            Self::Streamed => "proxy_request_buffering off;",
            Self::Default => "",
        }
    }
}

/// A running proxy.
#[derive(Debug)]
pub(crate) struct Proxy {
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// Its processes.
    pub(crate) guarded: Guarded,
}

/// What every proxy needs to know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Site<'a> {
    /// An existing folder for configuration, logs and temporary files.
    pub(crate) folder: &'a Path,
    /// Where the backends listen.
    pub(crate) backends: &'a [SocketAddr],
    /// What the clients speak.
    pub(crate) protocol: Protocol,
    /// What nginx does with request bodies.
    pub(crate) nginx_bodies: NginxBodies,
}

/// Starts nginx; `name` tells several of them apart.
pub(crate) fn start_nginx(program: &Path, name: &str, site: Site<'_>) -> anyhow::Result<Proxy> {
    let folder = site.folder.join(name);
    fs::create_dir_all(&folder)?;
    let address = free_address()?;
    let is_root = fs::metadata("/proc/self")?.uid() == 0;
    let config = folder.join("nginx.conf");
    fs::write(&config, nginx_config(address, site, &folder, is_root))?;
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
    Ok(Proxy { address, guarded: Guarded::spawn(name, &command, &folder.join("stderr.log"))? })
}

/// Starts Spillway with everything at its default except addresses, replicas and the layout.
pub(crate) fn start_spillway(
    program: &Path,
    layout: Layout,
    site: Site<'_>,
) -> anyhow::Result<Proxy> {
    let name = format!("spillway-{}", layout.name());
    let folder = site.folder.join(&name);
    fs::create_dir_all(&folder)?;
    let (address, admin) = (free_address()?, free_address()?);
    let config = folder.join("spillway.toml");
    fs::write(&config, spillway_config(address, admin, layout, site.backends)?)?;
    let command: Vec<OsString> =
        vec![program.into(), "run".into(), "--config".into(), config.into()];
    Ok(Proxy { address, guarded: Guarded::spawn(&name, &command, &folder.join("stderr.log"))? })
}

/// nginx as someone would set it up who wants it fast: keep-alive on both sides without a limit
/// of requests, no access log, and no buffering of answers (a stream
/// would stall, and for small answers it makes no difference).
fn nginx_config(address: SocketAddr, site: Site<'_>, folder: &Path, is_root: bool) -> String {
    let mut servers = String::new();
    for backend in site.backends {
        servers.push_str(&format!("    server {backend};\n"));
    }
    // Before version 1.25 a listener in clear text speaks either HTTP/1.1 or HTTP/2.
    let listen = match site.protocol {
        Protocol::Http1 => address.to_string(),
        Protocol::Http2 => format!("{address} http2"),
    };
    // Workers would give up root for a user who cannot write to the folder.
    let user = if is_root { "user root;\n" } else { "" };
    let folder = folder.display();
    let bodies = site.nginx_bodies.directive();
    format!(
        "daemon off;\n{user}worker_processes 2;\nworker_rlimit_nofile 65536;\n\
         pid {folder}/nginx.pid;\nerror_log {folder}/error.log error;\n\
         events {{ worker_connections 8192; }}\n\
         http {{\n\
         \x20 access_log off;\n  tcp_nodelay on;\n\
         \x20 keepalive_timeout 300s;\n  keepalive_requests 1000000000;\n\
         \x20 client_max_body_size 64m;\n  {bodies}\n\
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
    layout: Layout,
    backends: &[SocketAddr],
) -> anyhow::Result<String> {
    let layout = layout.name();
    let mut config = format!(
        "[node]\nname = \"bench\"\nregion = \"local\"\nworkers = 0\nworker_layout = \"{layout}\"\n\n\
         [[listener]]\naddress = \"{address}\"\n\n[admin]\naddress = \"{admin}\"\n\n\
         [[route]]\nname = \"llm\"\npolicy = \"power_of_two\"\n"
    );
    for (index, backend) in backends.iter().enumerate() {
        write!(
            config,
            "\n[[replica]]\nname = \"replica-{index}\"\nurl = \"http://{backend}\"\n\
             models = [\"{MODEL}\"]\n"
        )?;
    }
    Ok(config)
}

/// A loopback address that is free now. Another process could take it before the proxy does; then
/// the proxy says so and the run ends.
pub(crate) fn free_address() -> anyhow::Result<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("find a free port")?;
    Ok(listener.local_addr()?)
}
