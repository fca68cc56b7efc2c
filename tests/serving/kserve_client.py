"""What the client of KServe gets from a server, as JSON: ``python kserve_client.py PORT ROWS``.

It stands apart, as kserve wants an older pandas and protobuf than the other tests have.
"""

from __future__ import annotations

import asyncio
import json
import sys

import httpx
import numpy as np
from kserve import InferenceRESTClient, InferInput, InferRequest, RESTConfig

NAME, COLUMNS = "credit", ("age", "income", "children")


async def ask_v1(address, rows):
    """Protocol v1: scores of all rows, and what is said of a request in which no row can be explained."""
    async with InferenceRESTClient(RESTConfig(protocol="v1")) as client:
        told = {"live": await client.is_server_live(address), "ready": await client.is_model_ready(address, NAME)}
        told["explanations"] = (await client.explain(address, NAME, {"instances": rows}))["explanations"]
        try:
            await client.explain(address, NAME, {"instances": [[1]]})
        except httpx.HTTPStatusError as error:
            told["error"] = str(error)
    return told


async def ask_v2(address, rows):
    """Protocol v2: the net scores, asked for with one tensor and with one for each column."""
    cells = np.array(rows, np.float64)
    together = InferInput("rows", list(cells.shape), "FP64")
    together.set_data_from_numpy(cells, binary_data=False)
    columns = [InferInput(name, [len(cells)], "FP64") for name in COLUMNS]
    for column, values in zip(columns, cells.T, strict=True):
        column.set_data_from_numpy(values, binary_data=False)
    async with InferenceRESTClient(RESTConfig(protocol="v2")) as client:
        told = {"live": await client.is_server_live(address), "ready": await client.is_server_ready(address)}
        told["models"] = [await client.is_model_ready(address, name) for name in (NAME, "nobody")]
        told["net"] = []
        for tensors in ([together], columns):
            request = InferRequest(model_name=NAME, infer_inputs=tensors, request_id="first")
            answer = await client.infer(address, request, model_name=NAME)
            told["id"], told["parameters"] = answer.id, sorted(answer.parameters)
            told["net"].append(next(one for one in answer.outputs if one.name == "net").as_numpy().tolist())
    return told


async def main(port, rows):
    address = f"http://127.0.0.1:{port}"
    print(json.dumps({"v1": await ask_v1(address, json.loads(rows)), "v2": await ask_v2(address, json.loads(rows))}))


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
