"""The datastore from which an artifact is made: who may read it, and which of its folders."""

from activities.db import tables
from api.changes import ChangeContext
from api.problems import Problem, field_error, invalid
from api.services.job_datastores import UNUSABLE, locked_datastores
from workflows.contracts.artifacts import RegionalSource, Source
from workflows.rules.datastores.places import path_mistake


def check_regional_source(context: ChangeContext, project: tables.Project, source: Source) -> None:
    """Check the datastore of a source that names one.

    Raises: Problem `forbidden`, when the key may not read datastores; `invalid-request`, when the
    datastore is not of the project's account or is gone, or the path may not be.
    """
    if not isinstance(source, RegionalSource):
        return
    if not context.caller.may("datastores:read"):
        detail = f"key {context.caller.key_id} lacks the scope datastores:read of what is copied"
        raise Problem("forbidden", detail)
    found = locked_datastores(context.session, {source.datastore_id}, project.account_id)
    row = found.get(source.datastore_id)
    if row is None or row.status in UNUSABLE:
        rule = "is a datastore of the project's account: not found"
        raise invalid(field_error("source.datastore_id", rule, source.datastore_id))
    if broken := path_mistake(source.path, is_smb=row.type == "smb"):
        raise invalid(field_error("source.path", broken, source.path))
