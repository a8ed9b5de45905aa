//! Tests of KServe V2 over HTTP, with and without binary tensors.

use bytes::Bytes;
use serde_json::{Value, json};

use crate::client::{Reply, call, fast, get, post};

const INFER: &str = "/v2/models/tiny/infer";
const LENGTH: &str = "inference-header-content-length";

/// Returns a body with binary data after its JSON, and the header with the length of the JSON.
fn binary(head: &Value, data: &[u8]) -> (String, Bytes) {
    let head = head.to_string();
    (head.len().to_string(), [head.as_bytes(), data].concat().into())
}

fn split(reply: &Reply) -> (Value, Bytes) {
    let length: usize = reply.headers[LENGTH].to_str().unwrap().parse().unwrap();
    let mut body = reply.body.clone();
    let head = body.split_to(length);
    (serde_json::from_slice(&head).unwrap(), body)
}

#[tokio::test]
async fn the_server_and_its_models_are_described() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    assert_eq!(get(replica, "/v2").await.json()["extensions"], json!(["binary_tensor_data"]));
    assert_eq!(get(replica, "/v2/health/live").await.json(), json!({ "live": true }));
    assert_eq!(get(replica, "/v2/health/ready").await.json(), json!({ "ready": true }));
    let model = get(replica, "/v2/models/tiny").await.json();
    assert_eq!((&model["name"], &model["versions"]), (&json!("tiny"), &json!(["1"])));
    for path in ["/v2/models/tiny/ready", "/v2/models/tiny/versions/1/ready"] {
        assert_eq!(get(replica, path).await.json()["ready"], true, "{path}");
    }
    for path in ["/v2/models/huge", "/v2/models/tiny/versions/2/ready", "/v2/nothing"] {
        let reply = get(replica, path).await;
        assert_eq!(reply.status, 404, "{path}");
        assert!(reply.json()["error"].is_string(), "{path}");
    }
    emulator.shutdown().await;
}

#[tokio::test]
async fn json_tensors_come_back_as_they_went() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let inputs = json!([
        { "name": "a", "shape": [2, 2], "datatype": "FP32", "data": [[1.5, 2.0], [3.0, 4.0]] },
        { "name": "b", "shape": [1], "datatype": "BYTES", "data": ["text"] },
    ]);
    for path in [INFER, "/v2/models/tiny/versions/1/infer"] {
        let reply = post(replica, path, &json!({ "id": "42", "inputs": inputs })).await.json();
        assert_eq!(reply["outputs"], inputs, "{path}");
        assert_eq!((&reply["model_name"], &reply["id"]), (&json!("tiny"), &json!("42")));
    }
    let outputs = json!([{ "name": "b" }, { "name": "OUTPUT1" }]);
    let body = json!({ "inputs": inputs, "outputs": outputs });
    let reply = post(replica, INFER, &body).await.json();
    assert_eq!(reply["outputs"][0]["data"], json!(["text"]), "by name");
    assert_eq!(reply["outputs"][1]["name"], "OUTPUT1");
    assert_eq!(reply["outputs"][1]["data"], json!(["text"]), "by place");
    emulator.shutdown().await;
}

#[tokio::test]
async fn binary_tensors_come_back_as_they_went() {
    let emulator = fast(1).await;
    let data: Vec<u8> = (0..=255).collect();
    let head = json!({
        "inputs": [
            { "name": "a", "shape": [32], "datatype": "INT64",
              "parameters": { "binary_data_size": 256 } },
            { "name": "b", "shape": [2], "datatype": "INT32", "data": [7, 8] },
        ],
        "parameters": { "binary_data_output": true },
    });
    let (length, body) = binary(&head, &data);
    let reply = call(emulator.replica(0), "POST", INFER, &[(LENGTH, &length)], body).await;
    assert_eq!(reply.status, 200, "{reply:?}");
    assert_eq!(reply.headers["content-type"], "application/octet-stream");
    let (head, tensors) = split(&reply);
    assert_eq!(head["outputs"][0]["parameters"]["binary_data_size"], 256);
    assert_eq!(tensors[..256], data);
    assert_eq!(tensors[256..], [7, 0, 0, 0, 8, 0, 0, 0]);
    emulator.shutdown().await;
}

#[tokio::test]
async fn each_output_chooses_its_own_form() {
    let emulator = fast(1).await;
    let head = json!({
        "inputs": [{ "name": "a", "shape": [2], "datatype": "UINT16",
                     "parameters": { "binary_data_size": 4 } }],
        "outputs": [
            { "name": "a", "parameters": { "binary_data": false } },
        ],
    });
    let (length, body) = binary(&head, &[1, 0, 0, 1]);
    let reply = call(emulator.replica(0), "POST", INFER, &[(LENGTH, &length)], body).await;
    assert!(!reply.headers.contains_key(LENGTH));
    assert_eq!(reply.json()["outputs"][0]["data"], json!([1, 256]));
    emulator.shutdown().await;
}

#[tokio::test]
async fn wrong_tensors_get_v2_errors() {
    let emulator = fast(1).await;
    let replica = emulator.replica(0);
    let input = |shape: Value, datatype: &str, data: Value| {
        let input = json!({ "name": "a", "shape": shape, "datatype": datatype, "data": data });
        json!({ "inputs": [input] })
    };
    let cases = [
        json!({ "inputs": [] }),
        json!({}),
        input(json!([3]), "FP32", json!([1.0])),
        input(json!([1]), "FP99", json!([1.0])),
        input(json!([1]), "INT8", json!([1000])),
        json!({ "inputs": [{ "name": "a", "shape": [1], "datatype": "FP32" }] }),
        json!({ "inputs": [{ "name": "a", "shape": [1], "datatype": "FP32",
                             "parameters": { "binary_data_size": 4 } }] }),
    ];
    for body in cases {
        let reply = post(replica, INFER, &body).await;
        assert_eq!(reply.status, 400, "{body}");
        assert!(reply.json()["error"].is_string(), "{body}");
    }
    let unknown = post(replica, "/v2/models/huge/infer", &json!({})).await;
    assert_eq!(unknown.status, 404);
    assert!(unknown.json()["error"].as_str().unwrap().contains("huge"));

    let (_, body) = binary(&input(json!([1]), "INT8", json!([1])), &[1, 2]);
    let too_long = call(replica, "POST", INFER, &[(LENGTH, "99999")], body.clone()).await;
    assert_eq!(too_long.status, 400);
    let (length, body) = binary(&input(json!([1]), "INT8", json!([1])), &[1, 2]);
    let left_over = call(replica, "POST", INFER, &[(LENGTH, &length)], body).await;
    assert_eq!(left_over.status, 400);
    emulator.shutdown().await;
}
