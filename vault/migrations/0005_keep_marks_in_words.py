"""Make every text index anew: marks now belong to the word they are written onto."""

from django.db import migrations

TOKENIZER = "porter unicode61 remove_diacritics 2 categories ''L* N* Co M*''"


def index_anew(apps, schema_editor):
    connection = schema_editor.connection
    if connection.vendor != "sqlite":
        return
    with connection.cursor() as cursor:
        for workspace in apps.get_model("vault", "Workspace").objects.all():
            table = f"vault_fts_{workspace.pk}"
            cursor.execute(f"DROP TABLE IF EXISTS {table}")
            cursor.execute(f"CREATE VIRTUAL TABLE {table} USING fts5(text, content='', tokenize='{TOKENIZER}')")
            cursor.execute(
                f"INSERT INTO {table} (rowid, text) "
                "SELECT seq, text FROM vault_memory WHERE workspace_id = %s AND erased_at IS NULL ORDER BY seq",
                [workspace.pk],
            )


class Migration(migrations.Migration):
    dependencies = [("vault", "0004_embeddings_and_changes")]

    operations = [migrations.RunPython(index_anew, migrations.RunPython.noop)]
