# Written by tools/generate_protobuf.py from a .proto with this SHA-256, never by hand:
# b4561306df5fbecc408e701317600f08b165dc43ed7db0a5f9a4848a9d6b53a1
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Error(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OK: _ClassVar[Error]
    NAME_TOO_LONG: _ClassVar[Error]
    PARENT_IS_FILE: _ClassVar[Error]
    EXISTING_IS_DIRECTORY: _ClassVar[Error]
    EXISTING_IS_FILE: _ClassVar[Error]
    ALREADY_EXISTS: _ClassVar[Error]
    PRECONDITION_FAILED: _ClassVar[Error]
OK: Error
NAME_TOO_LONG: Error
PARENT_IS_FILE: Error
EXISTING_IS_DIRECTORY: Error
EXISTING_IS_FILE: Error
ALREADY_EXISTS: Error
PRECONDITION_FAILED: Error

class Entry(_message.Message):
    __slots__ = ("name", "is_directory", "attributes", "extended", "content")
    class Extended(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: bytes
        def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    IS_DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    ATTRIBUTES_FIELD_NUMBER: _ClassVar[int]
    EXTENDED_FIELD_NUMBER: _ClassVar[int]
    CONTENT_FIELD_NUMBER: _ClassVar[int]
    name: str
    is_directory: bool
    attributes: Attributes
    extended: _containers.RepeatedCompositeFieldContainer[Entry.Extended]
    content: bytes
    def __init__(self, name: _Optional[str] = ..., is_directory: _Optional[bool] = ..., attributes: _Optional[_Union[Attributes, _Mapping]] = ..., extended: _Optional[_Iterable[_Union[Entry.Extended, _Mapping]]] = ..., content: _Optional[bytes] = ...) -> None: ...

class Attributes(_message.Message):
    __slots__ = ("file_size", "mtime", "file_mode", "crtime")
    FILE_SIZE_FIELD_NUMBER: _ClassVar[int]
    MTIME_FIELD_NUMBER: _ClassVar[int]
    FILE_MODE_FIELD_NUMBER: _ClassVar[int]
    CRTIME_FIELD_NUMBER: _ClassVar[int]
    file_size: int
    mtime: int
    file_mode: int
    crtime: int
    def __init__(self, file_size: _Optional[int] = ..., mtime: _Optional[int] = ..., file_mode: _Optional[int] = ..., crtime: _Optional[int] = ...) -> None: ...

class LookupRequest(_message.Message):
    __slots__ = ("directory", "name")
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    directory: str
    name: str
    def __init__(self, directory: _Optional[str] = ..., name: _Optional[str] = ...) -> None: ...

class LookupResponse(_message.Message):
    __slots__ = ("entry",)
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    entry: Entry
    def __init__(self, entry: _Optional[_Union[Entry, _Mapping]] = ...) -> None: ...

class ListRequest(_message.Message):
    __slots__ = ("directory", "prefix", "start", "inclusive", "limit")
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    PREFIX_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    INCLUSIVE_FIELD_NUMBER: _ClassVar[int]
    LIMIT_FIELD_NUMBER: _ClassVar[int]
    directory: str
    prefix: str
    start: str
    inclusive: bool
    limit: int
    def __init__(self, directory: _Optional[str] = ..., prefix: _Optional[str] = ..., start: _Optional[str] = ..., inclusive: _Optional[bool] = ..., limit: _Optional[int] = ...) -> None: ...

class ListResponse(_message.Message):
    __slots__ = ("entry",)
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    entry: Entry
    def __init__(self, entry: _Optional[_Union[Entry, _Mapping]] = ...) -> None: ...

class Condition(_message.Message):
    __slots__ = ("clauses",)
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        NONE: _ClassVar[Condition.Kind]
        IF_NOT_EXISTS: _ClassVar[Condition.Kind]
        IF_EXISTS: _ClassVar[Condition.Kind]
        IF_ETAG_MATCH: _ClassVar[Condition.Kind]
    NONE: Condition.Kind
    IF_NOT_EXISTS: Condition.Kind
    IF_EXISTS: Condition.Kind
    IF_ETAG_MATCH: Condition.Kind
    class Clause(_message.Message):
        __slots__ = ("kind", "etags")
        KIND_FIELD_NUMBER: _ClassVar[int]
        ETAGS_FIELD_NUMBER: _ClassVar[int]
        kind: Condition.Kind
        etags: _containers.RepeatedScalarFieldContainer[str]
        def __init__(self, kind: _Optional[_Union[Condition.Kind, str]] = ..., etags: _Optional[_Iterable[str]] = ...) -> None: ...
    CLAUSES_FIELD_NUMBER: _ClassVar[int]
    clauses: _containers.RepeatedCompositeFieldContainer[Condition.Clause]
    def __init__(self, clauses: _Optional[_Iterable[_Union[Condition.Clause, _Mapping]]] = ...) -> None: ...

class Mutation(_message.Message):
    __slots__ = ("type", "directory", "name", "entry", "is_delete_data")
    class Type(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        PUT: _ClassVar[Mutation.Type]
        DELETE: _ClassVar[Mutation.Type]
    PUT: Mutation.Type
    DELETE: Mutation.Type
    TYPE_FIELD_NUMBER: _ClassVar[int]
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    IS_DELETE_DATA_FIELD_NUMBER: _ClassVar[int]
    type: Mutation.Type
    directory: str
    name: str
    entry: Entry
    is_delete_data: bool
    def __init__(self, type: _Optional[_Union[Mutation.Type, str]] = ..., directory: _Optional[str] = ..., name: _Optional[str] = ..., entry: _Optional[_Union[Entry, _Mapping]] = ..., is_delete_data: _Optional[bool] = ...) -> None: ...

class TransactionRequest(_message.Message):
    __slots__ = ("lock_key", "condition", "mutations", "condition_key", "route_key")
    LOCK_KEY_FIELD_NUMBER: _ClassVar[int]
    CONDITION_FIELD_NUMBER: _ClassVar[int]
    MUTATIONS_FIELD_NUMBER: _ClassVar[int]
    CONDITION_KEY_FIELD_NUMBER: _ClassVar[int]
    ROUTE_KEY_FIELD_NUMBER: _ClassVar[int]
    lock_key: str
    condition: Condition
    mutations: _containers.RepeatedCompositeFieldContainer[Mutation]
    condition_key: str
    route_key: str
    def __init__(self, lock_key: _Optional[str] = ..., condition: _Optional[_Union[Condition, _Mapping]] = ..., mutations: _Optional[_Iterable[_Union[Mutation, _Mapping]]] = ..., condition_key: _Optional[str] = ..., route_key: _Optional[str] = ...) -> None: ...

class TransactionResponse(_message.Message):
    __slots__ = ("error", "error_code")
    ERROR_FIELD_NUMBER: _ClassVar[int]
    ERROR_CODE_FIELD_NUMBER: _ClassVar[int]
    error: str
    error_code: Error
    def __init__(self, error: _Optional[str] = ..., error_code: _Optional[_Union[Error, str]] = ...) -> None: ...

class BatchRequest(_message.Message):
    __slots__ = ("transactions",)
    TRANSACTIONS_FIELD_NUMBER: _ClassVar[int]
    transactions: _containers.RepeatedCompositeFieldContainer[TransactionRequest]
    def __init__(self, transactions: _Optional[_Iterable[_Union[TransactionRequest, _Mapping]]] = ...) -> None: ...

class BatchResponse(_message.Message):
    __slots__ = ("responses",)
    RESPONSES_FIELD_NUMBER: _ClassVar[int]
    responses: _containers.RepeatedCompositeFieldContainer[TransactionResponse]
    def __init__(self, responses: _Optional[_Iterable[_Union[TransactionResponse, _Mapping]]] = ...) -> None: ...

class ConfigurationRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class ConfigurationResponse(_message.Message):
    __slots__ = ("signature", "version", "major_version", "minor_version")
    SIGNATURE_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    MAJOR_VERSION_FIELD_NUMBER: _ClassVar[int]
    MINOR_VERSION_FIELD_NUMBER: _ClassVar[int]
    signature: int
    version: str
    major_version: int
    minor_version: int
    def __init__(self, signature: _Optional[int] = ..., version: _Optional[str] = ..., major_version: _Optional[int] = ..., minor_version: _Optional[int] = ...) -> None: ...
