//! Creation of keys and join tokens, which have a secret.

use http::StatusCode;
use serde_json::{Value, json};
use spillway_cluster_state::{
    Command, Expect, Hidden, Item, JoinText, Key, KeyId, KeyRole, RecordKey, State, Tenant,
    TokenId, TokenTerms,
};
use spillway_types::nearest;

use super::cluster::Cluster;
use super::write::{carry_out, write};
use crate::call::AdminCall;
use crate::error::ApiError;
use crate::forms::{KnownSecret, NewJoinToken, NewKey, Secret};
use crate::known_names::{known_names, slip_within};
use crate::reply::{self, Reply};
use crate::resource::Resource;
use crate::secrets::{fresh_id, fresh_join_token, fresh_key};

/// Longest validity of a join token, in seconds. A forgotten token should expire by itself.
const VALID_S_MAX: u64 = 30 * 24 * 3_600;
/// Most nodes that may join by one token: as many as a cluster may have.
const USES_MAX: u32 = 512;

pub(super) async fn key(cluster: &Cluster<'_>, call: &AdminCall) -> Result<Reply, ApiError> {
    let new: NewKey = call.json_or_default()?;
    check_names(cluster, call, Resource::Keys, &json!(new.record)).await?;
    if let Some(tenant) = &new.record.tenant
        && let Some(shown) = settle_tenant(cluster, call, tenant).await?
    {
        return Ok(shown);
    }
    let id = new.key.map_or_else(fresh_id, Ok)?;
    let (salt, hash, shown) = match &new.secret {
        Some(known) => {
            let (salt, hash) = read_secret(known)?;
            (salt, hash, None)
        }
        None => {
            let fresh = fresh_key(&id)?;
            (fresh.salt, fresh.hash, Some(fresh.shown))
        }
    };
    let blank = Key {
        role: KeyRole::default(),
        salt,
        hash,
        tenant: None,
        models: Default::default(),
        regions: Default::default(),
        priority: 0,
        expires_ms: None,
        is_revoked: false,
    };
    let key = KeyId::from(id.as_str());
    let item = Item::Key(key.clone(), new.record.over(&blank));
    create(cluster, call, RecordKey::Key(key), item, (id, shown)).await
}

/// Refuses a record with a name that is most likely a slip of a known one.
async fn check_names(
    cluster: &Cluster<'_>,
    call: &AdminCall,
    resource: Resource,
    record: &Value,
) -> Result<(), ApiError> {
    let (Some(record), false) = (record.as_object(), call.query.creates) else { return Ok(()) };
    let look = |state: &State| slip_within(state, resource, record, &Value::Null);
    match cluster.read(call, look).await?.value {
        Some(slip) => Err(ApiError::slip(slip.resource, &slip.name, Some(&slip.meant))),
        None => Ok(()),
    }
}

/// Makes the tenant of a new key if there is none and the caller asks for it. Returns the answer to
/// a dry run that would make it: the key that would follow can't be tried without.
async fn settle_tenant(
    cluster: &Cluster<'_>,
    call: &AdminCall,
    tenant: &str,
) -> Result<Option<Reply>, ApiError> {
    let about = RecordKey::Tenant(tenant.into());
    let look = |state: &State| {
        let known = known_names(state, Resource::Tenants);
        let names: Vec<&str> = known.iter().map(String::as_str).collect();
        (known.contains(tenant), nearest(tenant, &names).map(str::to_owned))
    };
    let (is_known, meant) = cluster.read(call, look).await?.value;
    if is_known {
        return Ok(None);
    }
    if !call.query.creates {
        let remedy = "create it with ?create=true (`spillway`: --create)";
        let status = StatusCode::UNPROCESSABLE_ENTITY;
        let error =
            ApiError::new(status, "unknown_reference", format!("{about} does not exist"), remedy);
        return Err(meant.into_iter().fold(error, |error, meant| error.with_meant(&meant)));
    }
    let item = Item::Tenant(tenant.into(), Tenant::default());
    let command = Command::Put { item, expect: Expect::Absent };
    if call.query.is_dry_run {
        return write(cluster, call, &about, command).await.map(Some);
    }
    // The request's name identifies the write of the key.
    let own = AdminCall { request: None, ..call.clone() };
    match carry_out(cluster, &own, &about, command).await {
        // Another request has made it in between.
        Err(error) if !error.is_conflict() => Err(error),
        _ => Ok(None),
    }
}

/// Reads salt and hash of a secret that its holder has already.
fn read_secret(known: &KnownSecret) -> Result<([u8; 16], Hidden), ApiError> {
    let (mut salt, mut hash) = ([0; 16], [0; 32]);
    let read = hex::decode_to_slice(&known.salt, &mut salt)
        .and_then(|()| hex::decode_to_slice(&known.hash, &mut hash));
    read.map_err(|error| {
        let remedy =
            "give 32 digits of salt and 64 of hash, as `[[key]]` of a config file has them";
        let cause = format!("salt or hash are no hexadecimal digits: {error}");
        ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", cause, remedy)
    })?;
    Ok((salt, Hidden::new(hash)))
}

pub(super) async fn join_token(cluster: &Cluster<'_>, call: &AdminCall) -> Result<Reply, ApiError> {
    let new: NewJoinToken = call.json_or_default()?;
    if !(1..=VALID_S_MAX).contains(&new.valid_s) || !(1..=USES_MAX).contains(&new.uses) {
        let remedy = format!("use 1 to {VALID_S_MAX} seconds and 1 to {USES_MAX} uses");
        let cause = "the token would be good for too much or for nothing";
        return Err(ApiError::new(StatusCode::UNPROCESSABLE_ENTITY, "invalid", cause, remedy));
    }
    check_names(cluster, call, Resource::JoinTokens, &json!({ "region": new.region })).await?;
    let id = fresh_id()?;
    let secret = fresh_join_token(&id)?;
    let text = JoinText::read(&secret).ok_or_else(|| ApiError::internal("a token is malformed"))?;
    let item = token(&new, text);
    let key = RecordKey::JoinToken(TokenId::from(text.id));
    create(cluster, call, key, item, (id, Some(secret))).await
}

/// Returns the token to make.
fn token(new: &NewJoinToken, text: JoinText<'_>) -> Item {
    let terms = TokenTerms {
        key: text.public_key(),
        region: new.region.as_deref().map(Into::into),
        valid_ms: new.valid_s * 1_000,
        uses: new.uses,
        is_operator: new.operators,
    };
    Item::JoinToken(TokenId::from(text.id), terms)
}

/// Writes `item`, which must be new, and shows its secret. A repeated request has another secret,
/// and so is refused as another request under the same Idempotency-Key; the first secret is stored
/// nowhere.
async fn create(
    cluster: &Cluster<'_>,
    call: &AdminCall,
    about: RecordKey,
    item: Item,
    (key, secret): (String, Option<String>),
) -> Result<Reply, ApiError> {
    let command = Command::Put { item, expect: Expect::Absent };
    let exists = |error: ApiError| match error.is_conflict() {
        true => {
            error.in_words(format!("{about} exists"), "choose another name (`spillway`: --name)")
        }
        false => error,
    };
    // A dry run stores nothing, so there is no secret to show.
    if call.query.is_dry_run {
        return write(cluster, call, &about, command).await.map_err(exists);
    }
    let written = carry_out(cluster, call, &about, command).await.map_err(exists)?;
    // A version is the index of the entry that wrote the record.
    let version = written.version.unwrap_or(written.index);
    let secret = Secret { key, secret, index: written.index, version };
    Ok(reply::json(StatusCode::CREATED, &secret))
}
