"""A Temporal server whose clock skips ahead while workflows wait."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.testing import WorkflowEnvironment

TEST_SERVER = Path.home() / ".cache/baseload/temporal-test-server-1.38.0/temporal-test-server"


@asynccontextmanager
async def skipping_clock() -> AsyncIterator[WorkflowEnvironment]:
    """One that `make setup-tests` has built, without workflows."""
    environment = await WorkflowEnvironment.start_time_skipping(
        test_server_existing_path=str(TEST_SERVER),
        data_converter=pydantic_data_converter,
        test_server_startup_timeout=timedelta(seconds=60),
    )
    async with environment:
        yield environment
