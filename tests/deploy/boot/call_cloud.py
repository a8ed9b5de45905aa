"""Calls the moto server of the tests.

call_cloud.py ENDPOINT < a JSON list of [service, region, operation, arguments], results as one JSON list
"""

import json
import sys

import boto3

if __name__ == "__main__":
    results = []
    for service, region, operation, arguments in json.load(sys.stdin):
        client = boto3.client(
            service,
            region_name=region,
            endpoint_url=sys.argv[1],
            aws_access_key_id="test",
            aws_secret_access_key="test",
        )
        if "Filename" in arguments:
            results.append(client.upload_file(**arguments))
        else:
            results.append(getattr(client, operation)(**arguments))
    json.dump(results, sys.stdout, default=str)
