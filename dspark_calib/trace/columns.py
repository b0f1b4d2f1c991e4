"""Rounds to Arrow and back: the Parquet schema of a trace."""

from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from dspark_calib.errors import TraceFormatError
from dspark_calib.trace.labels import NULL, Labels
from dspark_calib.trace.rounds import (
    BLOCK_COLUMNS,
    LABEL_COLUMNS,
    OPTIONAL_BLOCK_COLUMNS,
    SCALAR_COLUMNS,
    UNKNOWN_ANCHOR,
    Rounds,
)

_DICTIONARY = pa.dictionary(pa.int32(), pa.string())


def arrow_schema(gamma: int, optional: tuple[str, ...] = ()) -> pa.Schema:
    """Return the schema of a part file with the optional columns named."""
    types: dict[str, pa.DataType] = {}
    for field in fields(Rounds):
        name = field.name
        if name in LABEL_COLUMNS:
            types[name] = _DICTIONARY
        elif name in SCALAR_COLUMNS:
            types[name] = pa.from_numpy_dtype(SCALAR_COLUMNS[name])
        elif name not in OPTIONAL_BLOCK_COLUMNS or name in optional:
            types[name] = pa.list_(pa.from_numpy_dtype(BLOCK_COLUMNS[name]), gamma)
    return pa.schema(list(types.items()))


def rounds_to_arrow(rounds: Rounds) -> pa.Table:
    """Return the rows as an Arrow table, labels as dictionaries and an unknown anchor as null."""
    present = tuple(name for name in OPTIONAL_BLOCK_COLUMNS if getattr(rounds, name) is not None)
    schema = arrow_schema(rounds.gamma, present)
    return pa.table([_to_arrow(getattr(rounds, name), name, schema.field(name).type) for name in schema.names], schema)


def _to_arrow(column: Labels | npt.NDArray[np.generic], name: str, kind: pa.DataType) -> pa.Array:
    if isinstance(column, Labels):
        codes = pa.array(column.codes, type=pa.int32(), mask=column.codes == NULL)
        return pa.DictionaryArray.from_arrays(codes, pa.array(column.names, type=pa.string()))
    if name in BLOCK_COLUMNS:
        flat = np.ascontiguousarray(column, dtype=BLOCK_COLUMNS[name]).reshape(-1)
        return pa.FixedSizeListArray.from_arrays(pa.array(flat), kind.list_size)
    mask = column == UNKNOWN_ANCHOR if name == "anchor" else None
    return pa.array(column, type=kind, mask=mask)


def rounds_from_arrow(batch: pa.RecordBatch, gamma: int, where: str) -> Rounds:
    """Return the rows of a record batch; columns left out of a projection that are required are errors.

    Raises:
        TraceFormatError: If a column is missing, null or of another type, or γ differs.
    """
    columns: dict[str, Any] = {}
    for field in fields(Rounds):
        name = field.name
        index = batch.schema.get_field_index(name)
        if index >= 0:
            columns[name] = _from_arrow(batch.column(index), name, gamma, f"{where}, {name}")
        elif name not in OPTIONAL_BLOCK_COLUMNS:
            raise TraceFormatError(f"{where}, {name}: the column is missing; collect or import the trace again")
    return Rounds(**columns)


def _from_arrow(array: pa.Array, name: str, gamma: int, where: str) -> Labels | npt.NDArray[np.generic]:
    if name in LABEL_COLUMNS:
        return _labels(array, where)
    if array.null_count and name != "anchor":
        raise TraceFormatError(f"{where}: null values are not allowed")
    if name in BLOCK_COLUMNS:
        return _block(array, BLOCK_COLUMNS[name], gamma, where)
    if not pa.types.is_integer(array.type):
        raise TraceFormatError(f"{where}: expected whole numbers, found {array.type}")
    values: npt.NDArray[np.generic] = array.fill_null(UNKNOWN_ANCHOR).to_numpy(zero_copy_only=False)
    return values.astype(SCALAR_COLUMNS[name], copy=False)


def _labels(array: pa.Array, where: str) -> Labels:
    if pa.types.is_string(array.type):
        array = array.dictionary_encode()
    if not pa.types.is_dictionary(array.type) or not pa.types.is_string(array.type.value_type):
        raise TraceFormatError(f"{where}: expected text, found {array.type}")
    codes = array.indices.fill_null(NULL).to_numpy(zero_copy_only=False)
    return Labels(codes=codes.astype(np.int32, copy=False), names=tuple(array.dictionary.to_pylist()))


def _block(array: pa.Array, dtype: type[np.generic], gamma: int, where: str) -> npt.NDArray[np.generic]:
    if not pa.types.is_fixed_size_list(array.type):
        raise TraceFormatError(f"{where}: expected a list of {gamma} numbers a row, found {array.type}")
    if array.type.list_size != gamma:
        raise TraceFormatError(f"{where}: rows hold {array.type.list_size} values, trace.json says γ = {gamma}")
    flat: npt.NDArray[np.generic] = array.flatten().to_numpy(zero_copy_only=False)
    return flat.astype(dtype, copy=False).reshape(len(array), gamma)
