//! `spillway certs request` and `sign`: the node's key and the CA's key each stay where they are.

use std::path::PathBuf;

use anyhow::{Context, Result};
use serde_json::json;
use spillway_link::Identity;
use spillway_link::certs::{
    AuthorityFiles, IfExists, NodeFiles, SigningRequest, write_public, write_secret,
};

use super::args::{RequestArgs, SignArgs};
use super::folder::read;
use super::issue::{NO_AUTHORITY, if_exists, validity, written};
use super::output::show;

/// Makes a node's key and its request.
///
/// # Errors
/// Returns an error if a name can't be used in a certificate, or if a file exists already or can't
/// be written.
pub(super) fn request(args: &RequestArgs) -> Result<()> {
    let identity = Identity::new(&args.cluster, &args.region, &args.node)?;
    let key_file = NodeFiles::in_folder(&args.out, &args.region, &args.node).key;
    let kept = match args.keep_key {
        true => Some(String::from_utf8(read(&key_file)?).context("the key is no text")?),
        false => None,
    };
    let (request, key) = SigningRequest::make(&identity, kept.as_deref())?;
    let if_exists = if_exists(args.force);
    if kept.is_none() {
        written(write_secret(&key_file, key, if_exists))?;
    }
    let request_file = args.out.join(format!("{}.{}.csr", args.node, args.region));
    // The request is worth nothing without its key, which is new or kept.
    written(write_public(&request_file, request, IfExists::Replace))?;
    let report = json!({
        "ok": true, "cluster": args.cluster, "region": args.region, "node": args.node,
        "uri": identity.uri(), "dns_name": identity.dns_name(),
        "request": request_file, "key": key_file,
    });
    let lines = [
        ("to where the CA is: `spillway certs sign`", request_file.as_path()),
        ("on this node, secret", &key_file),
    ];
    show(args.json, &report, &lines)
}

/// Makes the certificate that a request asks for.
///
/// # Errors
/// Returns an error if the request must not be signed, the CA is not there, or the certificate
/// can't be written.
pub(super) fn sign(args: &SignArgs) -> Result<()> {
    let authority = AuthorityFiles::in_folder(&args.dir).open().context(NO_AUTHORITY)?;
    let refused = || format!("{} is not signed", args.request.display());
    let request = SigningRequest::read(&read(&args.request)?).with_context(refused)?;
    let issued = authority.sign(&request, validity(args.days)?).with_context(refused)?;
    let identity = request.identity();
    let (region, node) = (identity.region().as_str(), identity.node().as_str());
    let beside = args.request.parent().map(PathBuf::from).unwrap_or_default();
    let out = args.out.as_ref().unwrap_or(&beside);
    let file = NodeFiles::in_folder(out, region, node).certificate;
    written(write_public(&file, issued, if_exists(args.force)))?;
    let report = json!({
        "ok": true, "cluster": authority.cluster(), "region": region, "node": node,
        "days": args.days, "certificate": file,
    });
    show(args.json, &report, &[("on this node, beside its key", file.as_path())])
}
