#!/usr/bin/env python3
"""The Python worker that an engine starts: ``--environment_type=PROCESS``.

It replaces ``/opt/apache/beam/boot`` of Beam's containers on machines where the package
is installed. It asks the engine for the options of the job, and works until the engine
closes the connection.
"""

import argparse
import os

import grpc
from apache_beam.portability.api import (
    beam_provision_api_pb2,
    beam_provision_api_pb2_grpc,
)
from apache_beam.runners.worker import sdk_worker_main
from google.protobuf import json_format, text_format


def main() -> None:
    """Sets the environment that Beam's worker reads, and runs that worker."""
    if "WORKER_LOG" in os.environ:
        # Engines drop what a process prints before it is connected.
        log = os.open(os.environ["WORKER_LOG"], os.O_CREAT | os.O_APPEND | os.O_WRONLY)
        os.dup2(log, 2)
    parser = argparse.ArgumentParser()
    parser.add_argument("--id", required=True)
    parser.add_argument("--provision_endpoint", required=True)
    args, _ = parser.parse_known_args()
    stub = beam_provision_api_pb2_grpc.ProvisionServiceStub(
        grpc.insecure_channel(args.provision_endpoint)
    )
    info = stub.GetProvisionInfo(
        beam_provision_api_pb2.GetProvisionInfoRequest(),
        metadata=[("worker_id", args.id)],
    ).info
    os.environ.update(
        WORKER_ID=args.id,
        PIPELINE_OPTIONS=json_format.MessageToJson(info.pipeline_options),
        RUNNER_CAPABILITIES=" ".join(info.runner_capabilities),
        LOGGING_API_SERVICE_DESCRIPTOR=text_format.MessageToString(
            info.logging_endpoint
        ),
        CONTROL_API_SERVICE_DESCRIPTOR=text_format.MessageToString(
            info.control_endpoint
        ),
    )
    sdk_worker_main.main([])


if __name__ == "__main__":
    main()
