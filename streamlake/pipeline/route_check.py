"""Could rows name their tables? The function can be imported, and the fields are there and of types that make names."""

from __future__ import annotations

from streamlake.pipeline.check_points import Points
from streamlake.pipeline.pipeline_file import Pipeline
from streamlake.pipeline.row_names import RowRoute, imported_route, route_name
from streamlake.pipeline.sampled_schema import with_inferred_schema
from streamlake.pipeline.table_names import ROUTE
from streamlake.source.kafka_source import KafkaSource

ROUTES = "routes"


def check_routes(pipeline: Pipeline, source: KafkaSource, points: Points) -> None:
    """Look at what fills the placeholders of a pipeline whose rows name its tables; a sample tells the fields where no schema
    is given."""
    with points.errors(ROUTES):
        name = pipeline.sink.arguments.get(ROUTE)
        function = None if name is None else imported_route(name)
        route = RowRoute(pipeline.sink.table, function)
        if route.fields:
            route.check(with_inferred_schema(source).table_schema)
        told = [f"the field {'.'.join(path)}" for path in route.fields.values()]
        told += [] if function is None else [f"the function {route_name(function)}"]
        points.right(ROUTES, f"rows name their tables by {' and '.join(told)}")
