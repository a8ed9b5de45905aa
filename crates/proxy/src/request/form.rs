//! The model named in a multipart upload (audio, image edits).

use std::convert::Infallible;

use bytes::Bytes;
use http::{HeaderMap, header};
use http_body_util::{BodyExt, Full};
use multer::{Constraints, Multipart, SizeLimit};
use spillway_protocol::{EngineFields, ErrorKind, GatewayError};

/// No model has a longer name.
const MODEL_BYTES_MAX: u64 = 1024;

/// The value of the field `model`, if there is one, and the fields that steer the model server.
///
/// # Errors
/// If the body is not well-formed multipart data, or names the model twice.
pub(crate) async fn model_in_form(
    headers: &HeaderMap,
    body: &Bytes,
) -> Result<(Option<String>, EngineFields), GatewayError> {
    let content_type =
        headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let boundary = multer::parse_boundary(content_type).map_err(|error| {
        let message = format!("multipart/form-data is needed here: {error}");
        GatewayError::new(ErrorKind::UnsupportedMediaType, message)
    })?;
    let stream = Full::<Bytes>::new(body.clone()).into_data_stream();
    let constraints =
        Constraints::new().size_limit(SizeLimit::new().for_field("model", MODEL_BYTES_MAX));
    let mut form =
        Multipart::with_constraints::<_, _, Infallible, _>(stream, boundary, constraints);
    let (mut model, mut engine_fields) = (None, EngineFields::NONE);
    while let Some(field) = form.next_field().await.map_err(|error| malformed(&error))? {
        engine_fields.note(field.name().unwrap_or_default());
        if field.name() != Some("model") {
            continue;
        }
        if model.is_some() {
            return Err(malformed(&"the field model occurs twice").with_param("model"));
        }
        model = Some(field.text().await.map_err(|error| malformed(&error))?);
    }
    Ok((model, engine_fields))
}

fn malformed(error: &impl ToString) -> GatewayError {
    let message = format!("malformed multipart body: {}", error.to_string());
    GatewayError::new(ErrorKind::BadRequest, message)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn check(body: &'static str) -> Result<Option<String>, GatewayError> {
        let mut headers = HeaderMap::new();
        let value = "multipart/form-data; boundary=X".parse().expect("a header");
        headers.insert(header::CONTENT_TYPE, value);
        let body = Bytes::from_static(body.as_bytes());
        Ok(model_in_form(&headers, &body).await?.0)
    }

    #[tokio::test]
    async fn fields_that_steer_the_model_server_are_noted() {
        let body = "--X\r\ncontent-disposition: form-data; name=\"priority\"\r\n\r\n1\r\n--X--\r\n";
        let headers = [(header::CONTENT_TYPE, "multipart/form-data; boundary=X".parse().unwrap())];
        let body = Bytes::from_static(body.as_bytes());
        let (_, fields) = model_in_form(&headers.into_iter().collect(), &body).await.unwrap();
        assert_eq!(Some(fields), EngineFields::named("priority"));
    }

    #[tokio::test]
    async fn the_model_is_found_behind_the_file() {
        let body = "--X\r\ncontent-disposition: form-data; name=\"file\"; filename=\"model\"\r\n\r\n\
                    model\r\n--X\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\nwhisper\r\n--X--\r\n";
        assert_eq!(check(body).await.expect("parses").as_deref(), Some("whisper"));
    }

    #[tokio::test]
    async fn a_form_may_name_no_model_but_not_two() {
        let none = "--X\r\ncontent-disposition: form-data; name=\"a\"\r\n\r\nb\r\n--X--\r\n";
        assert_eq!(check(none).await.expect("parses"), None);
        let twice = "--X\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\na\r\n\
                     --X\r\ncontent-disposition: form-data; name=\"model\"\r\n\r\nb\r\n--X--\r\n";
        assert_eq!(check(twice).await.expect_err("refused").kind, ErrorKind::BadRequest);
        assert!(check("garbage").await.is_err());
    }
}
